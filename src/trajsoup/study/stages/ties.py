"""Which cells of the main table cannot be told from the best of their column: a paired interval for each.

    test scores of the rows -> per column: the best, and who is inside its noise -> comparisons.json

The marks serve the eye, so they are made with fewer resamples than the comparisons that claims rest on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trajsoup.core.scores import TestScores
from trajsoup.core.signal import Signal
from trajsoup.core.statistics import Comparison, compare_losses, compare_tasks
from trajsoup.study.records.comparisons import ColumnTies

RESAMPLES = 2000  # at most
Compare = Callable[[TestScores, TestScores], Comparison]


def column_ties(scores: Mapping[str, TestScores], *, resamples: int) -> tuple[ColumnTies, ...]:
    """Every column of the table of these rows, loss and accuracy, by source and by category and overall."""
    count = min(resamples, RESAMPLES)
    losses = {name: s for name, s in scores.items() if s.losses is not None}
    tasks = {name: s for name, s in scores.items() if s.tasks}
    found: list[ColumnTies | None] = []
    for source in (*_sources(list(losses.values())), None):
        found.append(_column(source, Signal.LOSS, losses, _losses_of(source, count)))
    for category in (*dict.fromkeys(t.category for s in tasks.values() for t in s.tasks), None):
        found.append(_column(category, Signal.ACCURACY, tasks, _tasks_of(category, count)))
    return tuple(one for one in found if one is not None)


def _column(
    column: str | None, signal: Signal, scores: Mapping[str, TestScores], compare: Compare
) -> ColumnTies | None:
    values = {name: _value(one, signal, column) for name, one in scores.items()}
    usable = {name: value for name, value in values.items() if value is not None and np.isfinite(value)}
    if len(usable) < 2:
        return None
    best = (min if signal is Signal.LOSS else max)(usable, key=lambda name: usable[name])
    others = [name for name in usable if name != best]
    tied = tuple(name for name in others if compare(scores[name], scores[best]).within_noise)
    return ColumnTies(column=column, signal=signal, best=best, tied=tied)


def _value(scores: TestScores, signal: Signal, column: str | None) -> float | None:
    if signal is Signal.ACCURACY:
        return scores.overall_average if column is None else scores.category_means.get(column)
    assert scores.losses is not None
    return scores.losses.loss() if column is None else scores.losses.by_source().get(column)


def _sources(scores: Sequence[TestScores]) -> list[str]:
    return [] if not scores or scores[0].losses is None else list(scores[0].losses.by_source())


def _losses_of(source: str | None, resamples: int) -> Compare:
    def compare(mine: TestScores, best: TestScores) -> Comparison:
        assert mine.losses is not None
        assert best.losses is not None
        weights = None if source is None else {name: float(name == source) for name in mine.losses.source_names}
        return compare_losses(mine.losses, best.losses, source_weights=weights, resamples=resamples)

    return compare


def _tasks_of(category: str | None, resamples: int) -> Compare:
    def compare(mine: TestScores, best: TestScores) -> Comparison:
        parts = [[t for t in s.tasks if category in (None, t.category)] for s in (mine, best)]
        return compare_tasks(parts[0], parts[1], resamples=resamples)

    return compare
