"""Pure mathematics: no files, no torch, no clock, no randomness without a seed."""
