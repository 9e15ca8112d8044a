"""From rows of W to scores, each at most once."""
