"""An entry of a table or figure: what it leaves free, the rows that this allows, and the one that validation chose.

    Entry (options: rows of W) -> all options scored on validation, one read -> Chosen -> test, one read

Everything that is compared is an entry, so both sides of a comparison choose in the same way, and nothing can look at
the test split before it is chosen: `choose_entries` is given validation scores and no other type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.choosing import choose
from trajsoup.core.scores import ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.study.records.results import ChosenOn, RowRecord, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row that an entry may choose."""

    weights: Mapping[str, float]
    k: int | None
    horizon: int
    branches: tuple[str, ...]
    budget_tokens: int

    @property
    def name(self) -> str:
        """Unique for its weights, and readable in the score records."""
        members = "+".join(self.branches)
        k = "" if self.k is None else f" K={self.k}"
        return f"{members} t={self.horizon}{k} #{_digest(self.weights)}"

    @property
    def row(self) -> Row:
        """The row of W."""
        return Row(name=self.name, weights=self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Where a figure shows an entry."""

    series: str  # the line of a figure, or the block of a table
    x: float | str  # position on the axis, or the entry's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a table, a point of a figure."""

    name: str
    label: str
    strategy: str
    options: tuple[Option, ...]  # simplest first: ties go to the first
    free: tuple[str, ...] = ()
    setting: Setting | None = None
    select: str = "top-k"
    coefficients: str = "equal"
    at: Axis | None = None  # None: a line of the main table
    alone: bool = False  # the merge of one prescribed branch: no strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An entry with the option that validation chose."""

    entry: Entry
    option: Option
    chosen_on: ChosenOn
    validation: ValidationScores

    @property
    def row(self) -> Row:
        """The row of W, under its option's name."""
        return self.option.row


def options_of(entries: Sequence[Entry]) -> list[Row]:
    """Every row that some entry may choose, each once."""
    return list({option.name: option.row for entry in entries for option in entry.options}.values())


def choose_entries(
    entries: Sequence[Entry], scores: Mapping[str, ValidationScores], *, rank_by: Signal
) -> tuple[Chosen, ...]:
    """Pick the best option of each entry on validation."""
    found: list[Chosen] = []
    for entry in entries:
        mine = {option.name: scores[option.name] for option in entry.options}
        best = choose(mine, rank_by=rank_by) if len(mine) > 1 else None
        option = entry.options[0] if best is None else next(o for o in entry.options if o.name == best.name)
        chosen_on = ChosenOn(
            split=Split.VALIDATION,
            signal=rank_by,
            free=entry.free if len(mine) > 1 else (),
            among=len(mine),
            score=None if best is None else best.score,
        )
        found.append(Chosen(entry=entry, option=option, chosen_on=chosen_on, validation=mine[option.name]))
    return tuple(found)


def row_record(chosen: Chosen) -> RowRecord:
    """The chosen row as the records keep it."""
    entry, option, scores = chosen.entry, chosen.option, chosen.validation
    return RowRecord(
        name=entry.name,
        label=entry.label,
        strategy=entry.strategy,
        setting=entry.setting,
        select=entry.select,
        coefficients=entry.coefficients,
        k=option.k,
        horizon=option.horizon,
        budget_tokens=option.budget_tokens,
        branches=option.branches,
        weights=dict(option.weights),
        chosen_on=chosen.chosen_on,
        validation_loss=None if scores.losses is None else scores.losses.loss(),
        validation_accuracy=scores.overall_average,
        alone=entry.alone,
    )


def _digest(weights: Mapping[str, float]) -> str:
    import hashlib
    import json

    listed = sorted((key, float(weight).hex()) for key, weight in weights.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:8]
