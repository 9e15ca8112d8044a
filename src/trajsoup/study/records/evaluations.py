"""evaluations.json: the chosen models on test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from trajsoup.core.completion import ProtocolFields
from trajsoup.core.splits import Split
from trajsoup.study.records.estimate import Estimate, Shares
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one row scored on a split that chose nothing."""

    row: str
    split: Split
    loss: Estimate
    overall_average: Estimate | None
    answer_loss: Estimate | None = None  # nats of the right answers: as the average, but smooth
    categories: Shares = field(default_factory=dict[str, float | None])
    tasks: Shares = field(default_factory=dict[str, float | None])
    sources: Shares = field(default_factory=dict[str, float | None])  # loss by source of documents
    seeds: tuple[int, ...] = ()
    kept: tuple[str, ...] = ()  # the score records of it: scores/test/<name>.json, by document and item


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationsRecord(Record):
    """Test scores of the rows."""

    FILE: ClassVar[str] = "evaluations"
    evaluations: tuple[Evaluation, ...]
    notes: tuple[str, ...] = ()  # what of a preset of tasks could not be scored
    protocol: ProtocolFields | None = None  # how these models were chosen and scored: the paper's "Completion fields"
