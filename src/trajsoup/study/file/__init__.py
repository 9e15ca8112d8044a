"""The study file: what people write, checked, turned into data; and the studies that come with the package."""
