"""plan.json: what the study set out to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.budget import Setting
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """One line of tab:branch-mapping."""

    recipe: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]  # field -> (baseline, branch)
    steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord(Record):
    """What the study set out to do. Figures that a foreign run does not tell are None."""

    FILE: ClassVar[str] = "plan"
    title: str
    seed: int | None  # of everything: fork point, data orders; None for foreign runs
    setting: Setting
    horizon: int  # tokens per branch
    checkpoint_every: int | None
    sequence_length: int | None
    total_tokens: int
    total_params: int | None
    active_params: int | None
    flops_per_token: float | None
    train_flops: float | None
    epochs: float | None
    corpus: Mapping[str, int]  # split -> tokens
    branches: Mapping[str, BranchPlan]
    baseline: str | None  # None: runs that exist; the screen takes the one of median loss
    apart: tuple[int, ...] = ()  # shorter horizons, for each of which every branch is trained once more
    notes: tuple[str, ...] = ()
