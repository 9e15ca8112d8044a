"""Scores and differences as cells: the same digits, signs and intervals in every table."""

from __future__ import annotations

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report.style import bare_difference, score_text
from trajsoup.report.table import Cell, number, text
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.seeds import SeedSpread


def score(value: float | None, signal: Signal) -> Cell:
    """A score alone."""
    return number(value, lambda v: score_text(v, signal))


def estimate(found: Estimate | None, signal: Signal) -> Cell:
    """A score with its interval."""
    if found is None:
        return text(None)
    return number(found.value, lambda v: score_text(v, signal), low=found.low, high=found.high)


def signed(value: float | None, signal: Signal, *, low: float | None = None, high: float | None = None) -> Cell:
    """A difference, with its interval where there is one."""
    return number(value, lambda v: bare_difference(v, signal), low=low, high=high)


def spread(found: SeedSpread | None) -> Cell:
    """The mean of a difference over seeds with its interval."""
    return text(None) if found is None else signed(found.mean, found.signal, low=found.low, high=found.high)


def difference(found: ComparisonRecord | None) -> Cell:
    """A paired difference with its interval; a verdict has a column of its own."""
    return text(None) if found is None else signed(found.difference, found.signal, low=found.low, high=found.high)


def tokens(count: int | None) -> Cell:
    """Tokens for people."""
    return number(count, lambda v: format_tokens(round(v)))
