"""What a study writes down: typed, immutable, human-readable, the one truth."""
