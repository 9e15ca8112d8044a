"""The answer at a glance: the questions that matter, each with its interval and its seeds on one shared axis.

    answer, differences, seeds -> lines of (question, yes or no, places in percent) -> the top of the page

It is plain HTML, not a figure: it must be there before any script has run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.report.contents import Contents, Difference, Evidence, SeedLine, Soup
from trajsoup.report.figures.style import tokens_text

MARGIN = 6.0  # percent left free on both sides
VERDICTS = {Evidence.STRONG: "yes", Evidence.AGAINST: "no", Evidence.WITHIN_NOISE: "not certain"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One question. Places are percent of the axis, better to the left."""

    difference: Difference
    evidence: Evidence
    made_of: str  # what the soup consists of
    zero: float
    low: float
    middle: float
    high: float
    seeds: tuple[float, ...] = ()
    over_seeds: SeedLine | None = None

    @property
    def verdict(self) -> str:
        """The answer in a word."""
        if self.difference.value == self.difference.low == self.difference.high == 0:
            return "the same"  # as a rule because both are one checkpoint
        return VERDICTS[self.evidence]


def lines(contents: Contents) -> tuple[Line, ...]:
    """The answer's question first, then what else was asked of the same single-trajectory merge, in loss."""
    answer = contents.answer
    if answer is None:
        return ()
    asked = [answer.loss] + [
        d
        for d in contents.differences
        if d.rank_by is answer.loss.rank_by
        and d.name != answer.loss.name
        and answer.reference in (d.reference, d.label)
    ]
    seeds = {one.name: one for one in contents.seeds if one.rank_by is answer.loss.rank_by}
    axis = _Axis([value for d in asked for value in _values(d, seeds)])
    return tuple(_line(d, seeds.get(d.name), contents.soups, axis) for d in asked)


def _line(difference: Difference, seeds: SeedLine | None, soups: Mapping[str, Soup], axis: _Axis) -> Line:
    soup = soups.get(difference.model)
    evidence = difference.evidence
    if seeds is not None and seeds.low is not None and seeds.evidence is not evidence:
        evidence = Evidence.WITHIN_NOISE
    return Line(
        difference=difference,
        evidence=evidence,
        made_of="" if soup is None else _made_of(soup),
        zero=axis.place(0.0),
        low=axis.place(difference.value if difference.low is None else difference.low),
        middle=axis.place(difference.value),
        high=axis.place(difference.value if difference.high is None else difference.high),
        seeds=() if seeds is None else tuple(axis.place(value) for value in seeds.values.values()),
        over_seeds=seeds,
    )


def _made_of(soup: Soup) -> str:
    parts = [" + ".join(soup.members)]
    if soup.k is not None:
        parts.append(f"K = {soup.k}")
    if soup.horizon is not None:
        parts.append(f"{tokens_text(soup.horizon)} tokens each")
    return ", ".join(part for part in parts if part)


def _values(difference: Difference, seeds: Mapping[str, SeedLine]) -> Sequence[float]:
    bounds = [v for v in (difference.low, difference.value, difference.high) if v is not None]
    return [*bounds, *(seeds[difference.name].values.values() if difference.name in seeds else ())]


class _Axis:
    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = min(0.0, *values), max(0.0, *values)

    def place(self, value: float) -> float:
        width = self.high - self.low
        share = 0.5 if width == 0 else (value - self.low) / width
        return round(MARGIN + share * (100 - 2 * MARGIN), 2)
