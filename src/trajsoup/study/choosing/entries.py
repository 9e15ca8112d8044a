"""An entry of a table or figure: a method with what it may choose from, and the row that it chose.

    entries -> all methods run together (core/methods: settle), one read in each round -> Chosen -> test, one read

Everything that is compared is an entry, so both sides of a comparison choose in the same way, and nothing can look at
the test split before it is chosen: methods are sent validation scores and no other type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trajsoup.core.budget import Setting
from trajsoup.core.coefficients import EQUAL
from trajsoup.core.methods.asking import (
    Asking,
    Decision,
    Descending,
    Measuring,
    Option,
    Scoring,
    settle,
    with_scores_of_the_chosen,
)
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Method
from trajsoup.core.scores import ValidationScores
from trajsoup.core.selection import TOP_K
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row

OWN = "own"  # in records, where a method has a selection or weights of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Where a figure shows an entry."""

    series: str  # the line of a figure, or the block of a table
    x: float | str  # position on the axis, or the entry's name
    shares: Mapping[str, float] | None = None  # of branches, where that is the place of a point


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a table, a point of a figure."""

    key: str  # its name within its table
    label: str
    strategy: str
    ask: Callable[[], Asking]  # begins to choose
    sweep: str | None = None  # None: the main table
    setting: Setting | None = None
    select: str = TOP_K
    coefficients: str = EQUAL
    at: Axis | None = None  # None: a line of the main table
    alone: bool = False  # one branch by itself, beside the strategies
    rank_by: Signal | None = None  # what ranked its checkpoints; None: what the study ranks by
    beside: tuple[int | str, ...] = ()  # what it shares with those it is compared with, where the axis does not say it

    @property
    def name(self) -> str:
        """Unique in the study."""
        return self.key if self.sweep is None else f"{self.sweep}/{self.key}"

    @property
    def x(self) -> float | str | None:
        """Where it lies on the axis, if there is one."""
        return None if self.at is None else self.at.x


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An entry with the row that its method chose on validation."""

    entry: Entry
    decision: Decision

    @property
    def option(self) -> Option:
        """What was chosen."""
        return self.decision.option

    @property
    def row(self) -> Row:
        """The row of W, under its option's name."""
        return self.decision.option.row

    @property
    def validation(self) -> ValidationScores:
        """The scores of the row."""
        assert self.decision.validation is not None
        return self.decision.validation

    def cost(self, rank_by: Signal) -> float:
        """What validation minimises."""
        return self.validation.cost(rank_by)


def entry_of(
    method: Method,
    freedom: Freedom,
    *,
    key: str,
    label: str,
    sweep: str | None = None,
    setting: Setting | None = None,
    at: Axis | None = None,
    alone: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Entry:
    """The entry of a method that chooses from `freedom`, with parameters of its own in `settings`."""
    return Entry(
        key=key,
        label=label,
        strategy=method.strategy,
        ask=lambda: method.ask(freedom, **(settings or {})),
        sweep=sweep,
        setting=setting,
        select=freedom.select or method.select or OWN,
        coefficients=OWN if method.select is None else freedom.weights,
        at=at,
        alone=alone,
    )


def choose_entries(
    entries: Sequence[Entry],
    scoring: Scoring,
    *,
    measuring: Measuring | None = None,
    descending: Descending | None = None,
) -> tuple[Chosen, ...]:
    """Let every entry's method choose; what they ask is answered together."""
    askings = [with_scores_of_the_chosen(entry.ask()) for entry in entries]
    decisions = settle(askings, scoring, measuring=measuring, descending=descending)
    return tuple(Chosen(entry=e, decision=d) for e, d in zip(entries, decisions, strict=True))
