"""From a plan to branches of checkpoints."""
