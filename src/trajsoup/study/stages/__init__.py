"""The stages of a study: each reads the records before it, does one thing, writes one record."""
