"""Recipes designed before they run: short probes of candidates, the set to branch with, a study file ready to run."""
