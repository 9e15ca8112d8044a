"""design.json: which recipes to branch with, from short probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from trajsoup.core.splits import Split
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedRecipe:
    """What the probe of one recipe says of it."""

    name: str
    changes: Mapping[str, Any]  # fields of the baseline that it changes, as a study file has them
    loss: float | None  # on validation, above the baseline's probe; None: the probe diverged
    gap: float | None  # to the baseline's probe, on the same order of the data
    gap_error: float | None  # standard error over documents
    gap_other: float | None  # to the baseline on another order
    decorrelation: float | None  # rho = 1 - gap / gap_other; None: gap_other is not above zero
    usefulness: float | None  # gap - 1/2 |loss|
    cosine: float | None  # of its way from the fork point with the baseline's
    loss_gap: float | None  # J at the end of the probe
    expected_loss_gap: float | None  # J at the horizon
    expected_error: float | None
    too_far: float | None  # P(J_T > epsilon)
    left_out: str | None  # why it cannot be picked
    picked: int  # how many branches have it


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignRecord(Record):
    """Probes, the set that was picked, and how far to trust it."""

    FILE: ClassVar[str] = "design"
    split: Split
    probe_tokens: int  # of each probe
    horizon: int
    documents: float  # effective number
    recipes: tuple[ProbedRecipe, ...]  # the baseline first, then the other order
    branches: Mapping[str, Mapping[str, Any]]  # the picked set as `branches` of a study file
    gain: float  # promised over the best of them, at the length of the probe
    gain_low: float
    gain_high: float
    over_orders: float  # beyond as many orders of the baseline
    over_orders_low: float
    over_orders_high: float
    same_pick: float  # share of draws of the documents that pick the same
    gap_and_cosine: float | None  # Spearman of gaps and 1 - cosine over pairs of probes
    doubts: tuple[str, ...]  # why it cannot be trusted; empty: nothing speaks against it
    words: tuple[str, ...]
