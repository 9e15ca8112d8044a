"""Branches that adapt: worlds for core/allocating.py, one that trains and one that replays a finished study."""
