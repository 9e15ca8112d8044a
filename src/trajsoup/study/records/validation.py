"""validation.json: every checkpoint on validation and on the probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trajsoup.core.splits import Split
from trajsoup.study.records.estimate import Shares
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCheckpoint:
    """One checkpoint on the validation split and on the probe of training documents."""

    key: str
    branch: str
    tokens: int
    loss: float | None
    accuracy: float | None
    probe_loss: float | None  # training loss on a fixed probe; what the screen compares
    probe_pieces: tuple[float, ...] = ()  # the same on parts of the probe, the same for all: how far chance moves it
    categories: Shares = field(default_factory=dict[str, float | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRecord(Record):
    """Scores of every checkpoint; they rank, choose K, N, branch and horizon, and are not reported as results."""

    FILE: ClassVar[str] = "validation"
    split: Split
    documents: int
    fork_point_loss: float | None
    fork_point_accuracy: float | None
    checkpoints: tuple[ScoredCheckpoint, ...]
    apart: tuple[ScoredCheckpoint, ...] = ()  # of the runs that were trained for a Limited horizon alone
    saturation: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # branch -> share of its improvement in loss that its first half brought; none where it did not improve

    @property
    def scored(self) -> tuple[ScoredCheckpoint, ...]:
        """All of them."""
        return (*self.checkpoints, *self.apart)
