"""Task suites of the embedded default: seeded, generated, small enough for a small model."""
