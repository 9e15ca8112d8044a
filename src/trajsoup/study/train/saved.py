"""What a trained branch has saved."""

from __future__ import annotations

from pathlib import Path

from trajsoup.merge.branches import Branches, scan_branches
from trajsoup.store.runs import STATE


def saved_branch(folder: Path, step_tokens: int) -> Branches | None:
    """Its checkpoints; None where it diverged before the first."""
    if not any(folder.glob("checkpoint-*")):
        return None
    return scan_branches([folder], tokens_per_step=step_tokens)


def resumable_bytes(study: Path) -> int:
    """What the branches of a study keep to train on from, beside their checkpoints."""
    states = (study / "branches").glob(f"*/{STATE}*/*")
    return sum(path.stat().st_size for path in states if path.is_file())
