"""sft.json: every chosen model after the same fine-tuning (tab:tiny-post-train-main)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.splits import Split
from trajsoup.study.records.comparisons import ColumnTies, ComparisonRecord
from trajsoup.study.records.estimate import Estimate, Shares
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuned:
    """One chosen row after the identical fine-tuning; means over the fine-tuning's seeds."""

    row: str
    split: Split
    seeds: tuple[int, ...]
    overall_average: Estimate  # mean over seeds, interval over items
    by_seed: Shares  # seed -> Overall Average
    deviation: float | None  # of the Overall Average over seeds; None with one seed
    categories: Shares
    before: float | None  # Overall Average of the post-training suite without fine-tuning
    loss: Estimate  # nats per answer token of held-out pairs, prompts masked; mean over seeds
    loss_before: float | None
    souped: Estimate | None = None  # Overall Average of the mean of the seeds' weights; None with one seed
    souped_loss: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningRecord(Record):
    """Post-training: every row through the same SFT (tab:tiny-post-train-main)."""

    FILE: ClassVar[str] = "sft"
    settings: Mapping[str, str]  # optimizer, learning rate, schedule, tokens, items, seeds
    rows: tuple[FineTuned, ...]
    comparisons: tuple[ComparisonRecord, ...]
    ties: tuple[ColumnTies, ...] = ()
    strongest_single: str | None = None  # row: the single merge chosen anew, after fine-tuning, on validation items
