"""retention.json: what is no longer on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord(Record):
    """Which checkpoints are no longer on disk, and by which policy. Their scores and sha256 stay in the other records."""

    FILE: ClassVar[str] = "retention"
    top_k: int
    every_nth: int | None
    last: bool
    kept: tuple[str, ...]
    pruned: tuple[str, ...]
