"""rows.json: the models of the main table, chosen on validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from trajsoup.core.budget import Setting
from trajsoup.core.methods.asking import Promise
from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.study.records.files import Record

SOUP = "trajectory-soup"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenOn:
    """On what a choice was made: nothing but validation ever stands here."""

    split: Split
    signal: Signal
    free: tuple[str, ...]  # what was free: k, branch, horizon, branches; empty: prescribed, nothing was chosen
    among: int  # how many rows were compared
    score: float | None  # of the winner
    trained: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # branch -> tokens that had to be trained so that all of them could be compared

    validation_passes: int = 0  # rows that the method had scored on the way
    gradient_tokens: int = 0  # that it learned from
    promise: Promise | None = None  # of a method that predicts what its weights gain; None: it predicts nothing

    @property
    def trained_tokens(self) -> int:
        """Of all branches that were compared."""
        return sum(self.trained.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecord:
    """One reported model: a row of W and how it came to be."""

    name: str  # unique: what evaluations and comparisons refer to
    label: str  # as the table prints it
    strategy: str
    setting: Setting | None  # None: the same in both
    select: str
    coefficients: str
    k: int | None
    horizon: int | None  # tokens per branch by which checkpoints had to be saved
    budget_tokens: int  # training tokens of all branches that were used, up to the horizon
    branches: tuple[str, ...]
    weights: Mapping[str, float]  # checkpoint key -> weight
    chosen_on: ChosenOn
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    groups: Mapping[str, Mapping[str, float]] | None = None  # of tensors that have weights of their own
    sums: tuple[
        str, ...
    ] = ()  # what is left of its checkpoints (`keep: needed`): parts of their sums, relative to the study
    alone: bool = False  # the merge of one prescribed branch: no strategy, so no part of the main table

    def validation_score(self, signal: Signal) -> float | None:
        """What validation says of it."""
        return self.validation_loss if signal is Signal.LOSS else self.validation_accuracy

    @property
    def made_of(self) -> str:
        """Branches, K and horizon."""
        k = "" if self.k is None else f", K={self.k}"
        horizon = "" if self.horizon is None else f", {format_tokens(self.horizon)} tokens each"
        return f"{'+'.join(self.branches)}{k}{horizon}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRecord(Record):
    """The models of the main table."""

    FILE: ClassVar[str] = "rows"
    rows: tuple[RowRecord, ...]

    def best_soup(self) -> RowRecord | None:
        """The Trajectory Soup of lowest validation loss, Limited or Extended."""
        soups = [row for row in self.rows if row.strategy == SOUP]
        return min(soups, key=lambda row: inf if row.validation_loss is None else row.validation_loss, default=None)

    def best(self) -> RowRecord | None:
        """The row of lowest validation loss, raw checkpoints included: the model to take, written as a folder.

        Where every checkpoint is among the K best, Full Soup is the same model: then it goes by the name of ours.
        """
        scored = [row for row in self.rows if row.validation_loss is not None]
        return min(scored, key=lambda row: (row.validation_loss or 0.0, row.strategy != SOUP), default=None)

    def winner_and_fixed(self) -> tuple[RowRecord, RowRecord] | None:
        """The best on validation of the rows that it chose, and the first in which nothing was free."""
        scored = [row for row in self.rows if row.validation_loss is not None]
        chosen = [row for row in scored if row.chosen_on.free]
        fixed = [row for row in scored if not row.chosen_on.free]
        if not chosen or not fixed:
            return None
        return min(chosen, key=lambda row: row.validation_loss or 0.0), fixed[0]
