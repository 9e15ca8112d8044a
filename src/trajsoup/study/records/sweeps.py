"""sweeps/<name>.json: one comparison of the paper each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trajsoup.core.budget import Setting
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.estimate import Estimate, Shares
from trajsoup.study.records.files import Record, Records
from trajsoup.study.records.rows import ChosenOn


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One row of a sweep."""

    row: str
    series: str  # the line of a figure, or the block of a table
    x: float | str  # position on the axis, or the entry's name
    strategy: str
    setting: Setting | None  # None: the same in both
    weights: Mapping[str, float]  # the row of W: checkpoint key -> weight
    k: int | None
    n_branches: int
    merge_size: int  # checkpoints with a weight
    horizon: int | None
    budget_tokens: int
    branches: tuple[str, ...]
    chosen_on: ChosenOn
    validation_loss: float | None
    validation_accuracy: float | None
    test_loss: Estimate | None  # None: not reported, it only served to choose or to fill the grid
    test_accuracy: Estimate | None
    alone: bool = False  # the merge of one prescribed branch
    groups: Mapping[str, Mapping[str, float]] | None = None  # of tensors that have weights of their own
    shares: Mapping[str, float] | None = None  # branch -> its share, where that is the place of the point
    validation_categories: Shares = field(default_factory=dict[str, float | None])
    test_categories: Shares = field(default_factory=dict[str, float | None])

    def score(self, signal: Signal, split: Split, category: str | None = None) -> float | None:
        """One score, overall or of a category of tasks; None where it was not measured."""
        if category is not None:
            return (self.test_categories if split is Split.TEST else self.validation_categories).get(category)
        if split is Split.TEST:
            estimate = self.test_loss if signal is Signal.LOSS else self.test_accuracy
            return None if estimate is None else estimate.value
        return self.validation_loss if signal is Signal.LOSS else self.validation_accuracy

    @property
    def trained_tokens(self) -> int:
        """Tokens trained of its branches so that it could be chosen: one that stopped earlier had gone on."""
        trained = self.chosen_on.trained
        return sum(trained.get(branch, 0) for branch in self.branches) or self.budget_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One (N, K) of a grid on validation: the mean over its subsets of branches."""

    n_branches: int
    k: int
    loss: float
    subsets: int
    row: str  # the best of them
    best: bool  # of the whole grid
    best_of_n: bool  # of the cells with as many branches

    @property
    def merge_size(self) -> int:
        """M = N K."""
        return self.n_branches * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord(Record):
    """One named comparison of the paper."""

    FILE: ClassVar[str] = "sweeps"
    SEVERAL: ClassVar[bool] = True
    name: str
    kind: str  # of study/sweeps
    title: str
    paper: str  # label of the paper's table or figure
    x_label: str
    points: tuple[SweepPoint, ...]
    comparisons: tuple[ComparisonRecord, ...] = ()
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # what is to be seen
    cells: tuple[GridCell, ...] = ()  # of a grid over (N, K)

    @property
    def default(self) -> str | None:
        """The row that every comparison has on one side, which a table or figure marks; None where there is none."""
        sides = [{c.model, c.reference} for c in self.comparisons]
        shared = set.intersection(*sides) if sides else set[str]()
        return next((p.row for p in self.points if p.row in shared), None)

    def from_default(self, row: str, signal: Signal) -> ComparisonRecord | None:
        """The row minus the default, where the two were compared."""
        for c in self.comparisons:
            if c.signal is signal and {c.model, c.reference} == {row, self.default} and row != self.default:
                return c.seen_from(row)
        return None


def sweep_of(records: Records, kind: str) -> SweepRecord | None:
    """The sweep of that kind, whatever its name."""
    return next((sweep for sweep in records.every(SweepRecord).values() if sweep.kind == kind), None)
