"""Curves over tokens: raw checkpoints and strategies, overall and by category.

Raw checkpoints are scored on validation only. Whatever is drawn beside them is therefore drawn with its validation
score; test scores have panels of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report import contents as c
from trajsoup.study.records import results as r


def read_panels(
    validation: r.ValidationRecord | None, horizons: r.SweepRecord | None, *, chosen: frozenset[str]
) -> tuple[c.CurvePanel, ...]:
    """Overall panels first, validation with raw checkpoints and then test; then the categories in the same order."""
    points = () if horizons is None else tuple(p for p in horizons.points if p.horizon is not None)
    scored = () if validation is None else validation.checkpoints
    panels = [
        _panel(c.OVERALL, Signal.LOSS, Split.VALIDATION, _raw(scored, lambda s: s.loss, chosen), points),
        _panel(c.OVERALL, Signal.ACCURACY, Split.VALIDATION, _raw(scored, lambda s: s.accuracy, chosen), points),
        _panel(c.OVERALL, Signal.LOSS, Split.TEST, [], points),
        _panel(c.OVERALL, Signal.ACCURACY, Split.TEST, [], points),
    ]
    names = dict.fromkeys(name for p in points for name in p.validation_categories)
    for split in (Split.VALIDATION, Split.TEST):
        for name in names:
            raw = [] if split is Split.TEST else _raw(scored, lambda s, name=name: s.categories.get(name), chosen)
            panels.append(_panel(name, Signal.ACCURACY, split, raw, points))
    return tuple(p for p in panels if any(curve.raw or len(curve.points) > 1 for curve in p.curves))


def _panel(
    category: str, rank_by: Signal, split: Split, raw: Sequence[c.Curve], points: Sequence[r.SweepPoint]
) -> c.CurvePanel:
    found: dict[str, list[c.Point]] = {}
    for p in sorted(points, key=_budget):
        value = score_of(p, rank_by, split, category)
        if value is not None:
            found.setdefault(p.series, []).append(c.Point(tokens=_budget(p), value=value, name=p.row))
    strategies = [c.Curve(name=name, raw=False, points=tuple(line)) for name, line in found.items()]
    return c.CurvePanel(category=category, rank_by=rank_by, split=split.value, curves=(*raw, *strategies))


def score_of(point: r.SweepPoint, rank_by: Signal, split: Split, category: str = c.OVERALL) -> float | None:
    """One score of a point of a sweep; None where it was not measured."""
    if category != c.OVERALL:
        return (point.test_categories if split is Split.TEST else point.validation_categories).get(category)
    if split is Split.TEST:
        estimate = point.test_loss if rank_by is Signal.LOSS else point.test_accuracy
        return None if estimate is None else estimate.value
    return point.validation_loss if rank_by is Signal.LOSS else point.validation_accuracy


def _raw(
    scored: Sequence[r.ScoredCheckpoint], of: Callable[[r.ScoredCheckpoint], float | None], chosen: frozenset[str]
) -> list[c.Curve]:
    found: dict[str, list[c.Point]] = {}
    for s in sorted(scored, key=lambda s: s.tokens):
        value = of(s)
        if value is not None:
            point = c.Point(tokens=s.tokens, value=value, name=s.key, selected=s.key in chosen)
            found.setdefault(s.branch, []).append(point)
    order = dict.fromkeys(s.branch for s in scored)
    return [c.Curve(name=name, raw=True, points=tuple(found[name])) for name in order if name in found]


def _budget(point: r.SweepPoint) -> int:
    """The token budget of sec:setup: of all branches together in the Limited setting, of each in the Extended one."""
    return round(point.x) if isinstance(point.x, int | float) else point.horizon or 0
