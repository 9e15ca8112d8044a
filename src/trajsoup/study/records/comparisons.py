"""comparisons.json: paired differences, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.core.statistics import Optimism
from trajsoup.study.records.files import Record

SURE = 0.05  # the share of families in which any verdict may be wrong


class Evidence(StrEnum):
    """How sure a difference is. Only what was registered in advance has a verdict, by its Holm-adjusted p value."""

    STRONG = "strong"  # the model is better
    WITHIN_NOISE = "within noise"
    TOO_FEW = "too few to say"  # documents or seeds: there is no interval
    AGAINST = "against"  # the reference is better
    EXPLORATORY = "exploratory"  # not registered: an interval and no verdict

    @property
    def holds(self) -> str:
        """What becomes of the claim that the model is better."""
        return {"strong": "holds", "against": "the opposite holds"}.get(self.value, self.value)

    @classmethod
    def of(cls, signal: Signal, value: float | None, *, primary: bool, p_holm: float | None) -> Evidence:
        """The verdict on a difference, model minus reference."""
        if not primary:
            return cls.EXPLORATORY
        if value is None or p_holm is None:
            return cls.TOO_FEW
        if not p_holm <= SURE:
            return cls.WITHIN_NOISE
        return cls.STRONG if signal.improves(value) else cls.AGAINST


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A paired difference, model minus reference, on the same documents or items."""

    name: str
    question: str  # in words
    model: str  # names of rows
    reference: str
    signal: Signal
    split: Split
    difference: float | None
    low: float | None
    high: float | None  # over the documents or items of one seed: it does not cover what another seed would change
    p: float | None  # two-sided, of no difference
    resamples_better: float | None  # share of resamples in which the model is better
    count: int
    matched: str  # what both sides share: the budget in tokens, or the horizon
    label: str = ""  # both sides, as people call them
    primary: bool = False  # registered in advance; otherwise exploratory
    p_holm: float | None = None  # of a primary one, adjusted for the whole family
    kept: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # score records of model and reference

    @property
    def evidence(self) -> Evidence:
        """The verdict; none on what was not registered."""
        return Evidence.of(self.signal, self.difference, primary=self.primary, p_holm=self.p_holm)

    def seen_from(self, row: str) -> ComparisonRecord:
        """The same comparison with `row` as the model: where it is the reference, signs and sides change."""
        if row == self.model:
            return self
        assert row == self.reference, f"{row!r} is no side of {self.name!r}"
        share = self.resamples_better
        return replace(
            self,
            model=self.reference,
            reference=self.model,
            difference=None if self.difference is None else -self.difference,
            low=None if self.high is None else -self.high,
            high=None if self.low is None else -self.low,
            resamples_better=None if share is None else 1 - share,
            kept=(self.kept[1], self.kept[0]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTies:
    """One column of the main table: which rows a paired interval cannot tell from the best."""

    column: str | None  # a source of documents or a category of tasks; None: overall
    signal: Signal
    best: str  # row
    tied: tuple[str, ...]  # rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonsRecord(Record):
    """All paired differences of the main table."""

    FILE: ClassVar[str] = "comparisons"
    level: float
    resamples: int
    comparisons: tuple[ComparisonRecord, ...]
    ties: tuple[ColumnTies, ...] = ()
    optimism: Optimism | None = None  # of the row that won on validation; None: nothing was fixed in advance
    not_made: tuple[str, ...] = ()  # primary comparisons of which a side, or the signal, was not there
