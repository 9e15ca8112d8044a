"""Trajectory Soup: average the best checkpoints of several training branches into one better model."""

__version__ = "0.1.0"
