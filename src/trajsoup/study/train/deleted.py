"""branches/deleted.json: checkpoints that a study with `keep: needed` has deleted, and what is still known of them.

Written before anything is deleted: a kill in between leaves a checkpoint that is named here and lies there, and then it
counts as there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from trajsoup.errors import TrainError
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic

DELETED = "branches/deleted.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """One checkpoint that is gone."""

    run: str  # folder of its run, below branches/
    tokens: int
    sha256: str  # its identity, under which its scores are kept


def read_deleted(output: Path) -> dict[str, Deleted]:
    """By key, those that do not lie there; empty where nothing was ever deleted."""
    path = output / DELETED
    if not path.is_file():
        return {}
    cure = "train the study again in another `output`"
    found = read_json(path, dict[str, Deleted], cure=cure, error=TrainError)
    return {key: one for key, one in found.items() if not (output / key).exists()}


def write_deleted(output: Path, deleted: Mapping[str, Deleted]) -> None:
    """Say what is gone, or will be."""
    text = json.dumps({key: asdict(one) for key, one in sorted(deleted.items())}, indent=1)
    write_atomic(output / DELETED, text + "\n")
