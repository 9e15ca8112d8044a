"""neighbours.json: methods of others that train, on the same tokens, beside Trajectory Soup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.signal import Signal
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNeighbour:
    """One model, as the table shows it."""

    name: str
    label: str
    made_of: str  # in words
    tokens: int  # trained for it, over all runs together
    models: int  # that answer together: what inference costs
    weights: Mapping[str, float]  # checkpoint key -> weight; empty: no row of W
    validation_loss: float | None
    test_loss: Estimate
    test_accuracy: Estimate | None  # None: no tasks, or none that this model can answer


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighboursRecord(Record):
    """Methods that train; the first two are the rows of the study that they are compared with."""

    FILE: ClassVar[str] = "neighbours"
    models: tuple[TrainedNeighbour, ...]
    comparisons: tuple[ComparisonRecord, ...]

    def against(self, model: str, reference: str, signal: Signal) -> ComparisonRecord | None:
        """One minus the other, where they were compared."""
        asked = (model, reference, signal)
        return next((c for c in self.comparisons if (c.model, c.reference, c.signal) == asked), None)
