"""Merge what you have: scan, screen, choose, plan, make, provenance, verify, doctor. Never needs torch."""
