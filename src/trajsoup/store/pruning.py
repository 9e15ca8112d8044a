"""Delete checkpoints that a retention policy gives up: whole folders, renamed first, so that none is ever found in part."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from trajsoup.errors import OutputError
from trajsoup.store.checkpoint import is_checkpoint

MARK = ".trajsoup-pruned-"


def prune(folders: Sequence[Path], *, below: Path) -> int:
    """Delete checkpoint folders that lie below `below`; return the bytes set free."""
    freed = 0
    root = below.resolve()
    for torso in below.rglob(f"{MARK}*"):  # of a pruning that was killed
        shutil.rmtree(torso)
    for folder in folders:
        if root not in folder.resolve().parents or not is_checkpoint(folder):
            raise OutputError(f"{folder} is not a checkpoint folder below {below}: it is left as it is")
        freed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        gone = folder.parent / f"{MARK}{uuid.uuid4().hex}"
        os.rename(folder, gone)
        shutil.rmtree(gone)
    return freed
