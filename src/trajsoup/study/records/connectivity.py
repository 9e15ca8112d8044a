"""connectivity.json: the loss on segments and curves between models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPair:
    """The loss along one path between two models, on validation (Frankle 2020; Garipov 2018)."""

    first: str  # branches, or copies of the baseline
    second: str
    path: str  # straight, bezier, chain
    depth: int | None  # tokens along the baseline before the two forked; None: branches of the study's own fork point
    tokens: int  # of each since they forked
    k: int  # checkpoints in each end
    grid: tuple[float, ...]
    losses: tuple[float, ...]
    instability: float  # the highest loss minus the mean of the ends
    low: float | None  # its interval over documents, at the place where the loss is highest
    high: float | None
    worst: float  # that place
    best: float  # the place of the lowest loss
    best_loss: float
    stable: bool  # the instability is below 2 % of the ends' mean
    gradient_tokens: int  # that the bend learned from; 0: straight
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectivityRecord(Record):
    """All paths that were measured."""

    FILE: ClassVar[str] = "connectivity"
    pairs: tuple[JoinedPair, ...]  # straight segments between anchors
    depths: tuple[JoinedPair, ...] = ()  # between copies that forked later
    curves: tuple[JoinedPair, ...] = ()
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
