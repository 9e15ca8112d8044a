"""What a trained branch has saved."""

from __future__ import annotations

from pathlib import Path

from trajsoup.merge.branches import Branches, scan_branches


def saved_branch(folder: Path, step_tokens: int) -> Branches | None:
    """Its checkpoints; None where it diverged before the first."""
    if not any(folder.glob("checkpoint-*")):
        return None
    return scan_branches([folder], tokens_per_step=step_tokens)
