"""train.json: the branches and their checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedCheckpoint:
    """One saved checkpoint."""

    key: str  # its folder, relative to the study
    tokens: int
    sha256: str  # of its weights and config


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBranch:
    """How one branch ended."""

    branch: str
    status: str  # finished, diverged, failed, foreign
    tokens: int
    message: str | None  # why it ended before its horizon
    metrics: str | None  # metrics.jsonl relative to the study
    checkpoints: tuple[TrainedCheckpoint, ...]
    apart_for: int | None = None  # the horizon of a run apart; None: trained to the full one


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRecord(Record):
    """All branches, and the fork point they share."""

    FILE: ClassVar[str] = "train"
    fork_point: str | None  # sha256 of its weights and config; None: runs that exist, and nobody knows their fork point
    branches: tuple[TrainedBranch, ...]
    apart: tuple[TrainedBranch, ...] = ()  # the same branches, each trained for a Limited horizon alone

    @property
    def runs(self) -> tuple[TrainedBranch, ...]:
        """All that was trained."""
        return (*self.branches, *self.apart)
