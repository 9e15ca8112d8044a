"""seeds.json: the comparisons over all seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.study.records.comparisons import Evidence
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSpread:
    """One number over several seeds of everything, all scored on the same documents or items."""

    name: str  # a row's or a comparison's name
    signal: Signal
    values: Mapping[str, float]  # seed -> value
    mean: float
    deviation: float | None
    low: float | None  # over seeds and documents crossed (core/crossed.py); None: one seed has it
    high: float | None
    label: str  # as the table prints it
    without: tuple[str, ...] = ()  # seeds that do not have it: another branch was admitted, or the model diverged
    p: float | None = None  # two-sided, of no difference
    seeds_error: float | None = None  # standard errors of the mean: what other seeds would change
    documents_error: float | None = None  # what other documents would change in all seeds alike
    together_error: float | None = None  # what they would change in each seed on its own; part of seeds_error
    count: int | None = None  # documents or items
    primary: bool = False  # registered in advance; otherwise exploratory
    p_holm: float | None = None  # of a primary one, adjusted for the whole family

    @property
    def evidence(self) -> Evidence:
        """The verdict; none on what was not registered."""
        return Evidence.of(self.signal, self.mean, primary=self.primary, p_holm=self.p_holm)

    @property
    def better(self) -> int:
        """In how many seeds the model is better."""
        return sum(self.signal.improves(value) for value in self.values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GridGain:
    """What N branches change in the loss of one at the same K, over seeds: means over all subsets, on validation.

    Its interval is Student's over seeds alone, for these validation documents.
    """

    n_branches: int
    k: int
    loss: SeedSpread


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsRecord(Record):
    """All comparisons over seeds; below <study>/records of seed 0, others in <study>/seeds/<seed>."""

    FILE: ClassVar[str] = "seeds"
    seeds: tuple[int, ...]
    split: Split
    rows: tuple[SeedSpread, ...]
    comparisons: tuple[SeedSpread, ...]  # of the main table
    words: tuple[str, ...]
    further: Mapping[str, tuple[SeedSpread, ...]] = field(
        default_factory=dict[str, tuple[SeedSpread, ...]]
    )  # of sweeps and fine-tuning, by the record's name
    grid: tuple[GridGain, ...] = ()  # of the (N, K) sweep, where every seed has one
