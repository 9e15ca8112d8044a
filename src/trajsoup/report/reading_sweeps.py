"""Curves, frontier, surface and ablations, from validation scores and sweeps.

Raw checkpoints are scored on validation only. Whatever is drawn beside them is therefore drawn with its validation
score; test scores have panels of their own.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence

from trajsoup.core.estimators import SoupLosses, fit_branches
from trajsoup.core.frontier import SoupPoint, frontier
from trajsoup.core.pool import RankBy
from trajsoup.core.scaling import bootstrap_band, fit_power_law
from trajsoup.errors import TrajsoupError
from trajsoup.report import contents as c
from trajsoup.study import records as r

DRAWN = 60  # points of a fitted curve
BEYOND = 1.6  # how far past the last measured compute a fit is drawn
RESAMPLES = 200  # refits for a band: enough for its outline
ORDERED = ("allocation",)  # sweeps whose entries have an order
ABLATIONS = ("coefficients", "selections", "allocation", "sampling")
DEFAULTS = {"coefficients": "equal", "selections": "top-k"}  # the paper's default configuration


def read_panels(
    validation: r.ValidationRecord | None,
    horizons: r.SweepRecord | None,
    evaluations: r.EvaluationsRecord | None,
    *,
    chosen: frozenset[str],
) -> tuple[c.CurvePanel, ...]:
    """Overall panels first: validation with raw checkpoints, then test; then the categories where they were scored."""
    points = () if horizons is None else tuple(p for p in horizons.points if p.horizon is not None)
    scored = () if validation is None else validation.checkpoints
    panels: list[c.CurvePanel] = []
    for rank, raw_of, soup_of in (
        (RankBy.LOSS, lambda s: s.loss, lambda p: p.validation_loss),
        (RankBy.ACCURACY, lambda s: s.accuracy, lambda p: p.validation_accuracy),
    ):
        curves = [*_raw(scored, raw_of, chosen), *_strategies(points, soup_of)]
        if curves:
            panels.append(c.CurvePanel(category=c.OVERALL, rank_by=rank, split="validation", curves=tuple(curves)))
    for rank, test_of in (
        (RankBy.LOSS, lambda p: None if p.test_loss is None else p.test_loss.value),
        (RankBy.ACCURACY, lambda p: None if p.test_accuracy is None else p.test_accuracy.value),
    ):
        curves = _strategies(points, test_of)
        if any(len(curve.points) > 1 for curve in curves):
            panels.append(c.CurvePanel(category=c.OVERALL, rank_by=rank, split="test", curves=tuple(curves)))
    by_row = {} if evaluations is None else {e.row: e for e in evaluations.evaluations}
    names = dict.fromkeys(name for p in points if p.row in by_row for name in by_row[p.row].categories)
    for name in names:
        curves = _strategies(
            points, lambda p, name=name: by_row[p.row].categories.get(name) if p.row in by_row else None
        )
        if any(len(curve.points) > 1 for curve in curves):
            panels.append(c.CurvePanel(category=name, rank_by=RankBy.ACCURACY, split="test", curves=tuple(curves)))
    return tuple(panels)


def read_surface(scaling: r.SweepRecord | None) -> c.Surface | None:
    """The (N, K) grid on validation; a cell of several subsets of branches is their mean, named by its best one."""
    if scaling is None:
        return None
    full = max((p.horizon or 0 for p in scaling.points), default=0)
    groups: dict[tuple[int, int], list[r.SweepPoint]] = {}
    for p in scaling.points:
        if p.k is not None and p.validation_loss is not None and (p.horizon or full) == full:
            groups.setdefault((p.n_branches, p.k), []).append(p)
    if not groups:
        return None
    promised = _predictions([p for points in groups.values() for p in points])
    return c.Surface(
        rank_by=RankBy.LOSS,
        split="validation",
        cells=tuple(
            c.SurfaceCell(
                n_branches=n,
                k=k,
                value=statistics.fmean(_loss(p) for p in points),
                name=min(points, key=_loss).row,
                subsets=len(points),
                predicted=promised.get((n, k)),
            )
            for (n, k), points in sorted(groups.items())
        ),
    )


def read_frontier(
    plan: r.PlanRecord | None,
    validation: r.ValidationRecord | None,
    rows: r.RowsRecord | None,
    sweeps: Mapping[str, r.SweepRecord],
) -> c.Frontier | None:
    """Raw checkpoints of the baseline and every top-K merge over training compute, and two power laws."""
    if plan is None or plan.flops_per_token is None or validation is None:
        return None
    flops = plan.flops_per_token
    raw = tuple(
        c.ComputePoint(name=s.key, label=f"{s.branch}, raw", compute=flops * s.tokens, score=s.loss)
        for s in validation.checkpoints
        if s.branch == plan.baseline and s.loss is not None and s.tokens > 0
    )
    merges: dict[str, r.SweepPoint | r.RowRecord] = {
        p.row: p for name in ("horizons", "scaling") if name in sweeps for p in sweeps[name].points
    }
    merges |= {row.name: row for row in (() if rows is None else rows.rows)}
    points = {
        name: p
        for name, p in merges.items()
        if p.validation_loss is not None and p.budget_tokens > 0 and p.k is not None
    }
    soups = [
        SoupPoint(
            compute=flops * p.budget_tokens,
            score=_loss(p),
            n_branches=len(p.branches),
            horizon=p.horizon or 0,
            k=p.k or 0,
        )
        for p in points.values()
    ]
    best = {(s.compute, s.score, s.n_branches, s.k) for s in frontier(soups, rank_by=RankBy.LOSS, improving=True)}
    drawn = tuple(
        c.ComputePoint(
            name=name,
            label=", ".join(p.branches),
            compute=s.compute,
            score=s.score,
            n_branches=s.n_branches,
            k=p.k,
            on_frontier=(s.compute, s.score, s.n_branches, s.k) in best,
        )
        for (name, p), s in zip(points.items(), soups, strict=True)
    )
    last = max([p.compute for p in (*raw, *drawn)], default=0.0)
    return c.Frontier(
        rank_by=RankBy.LOSS,
        split="validation",
        raw=raw,
        soups=drawn,
        fits=(
            _fit("raw training", tuple((p.compute, p.score) for p in raw), last),
            _fit("Trajectory Soup", tuple((p.compute, p.score) for p in drawn if p.on_frontier), last * BEYOND),
        ),
        cost=_cost(plan, validation, sweeps),
    )


def read_ablations(sweeps: Mapping[str, r.SweepRecord]) -> tuple[c.Ablation, ...]:
    """Each ablation on test where it was reported there, otherwise on validation."""
    return tuple(_ablation(sweeps[name]) for name in ABLATIONS if name in sweeps and sweeps[name].points)


def _ablation(sweep: r.SweepRecord) -> c.Ablation:
    tested = all(p.test_loss is not None and p.test_loss.value is not None for p in sweep.points)
    compared = [one for one in sweep.comparisons if one.signal is r.Signal.LOSS and one.difference is not None]
    default = _default(sweep, compared)
    many = len({p.series for p in sweep.points}) > 1
    variants: list[c.Variant] = []
    for i, p in enumerate(sweep.points):
        value = p.test_loss.value if tested and p.test_loss is not None else p.validation_loss
        if value is None:
            continue
        label = f"{p.x:g}" if isinstance(p.x, int | float) else p.x
        difference, low, high = _from_default(p.row, default, compared) if tested else (None, None, None)
        variants.append(
            c.Variant(
                soup=p.row,
                label=f"{p.series}: {label}" if many else label,
                value=value,
                difference=difference,
                low=low,
                high=high,
                position=float(i) if sweep.name in ORDERED else None,
            )
        )
    return c.Ablation(
        name=sweep.name,
        title=sweep.title,
        rank_by=RankBy.LOSS,
        split="test" if tested else "validation",
        variants=tuple(variants),
        axis=f"{sweep.x_label}, {sweep.points[0].series}" if sweep.name in ORDERED else None,
        default=next((v.label for v in variants if v.soup == default), None),
    )


def _default(sweep: r.SweepRecord, compared: Sequence[r.ComparisonRecord]) -> str | None:
    """The row that every comparison of the sweep shares; without comparisons, the paper's default."""
    shared = {p.row for p in sweep.points}
    for one in compared:
        shared &= {one.model, one.reference}
    if compared and len(shared) == 1:
        return shared.pop()
    wanted = DEFAULTS.get(sweep.name)
    return next((p.row for p in sweep.points if wanted is not None and str(p.x).lower() == wanted), None)


def _from_default(
    row: str, default: str | None, compared: Sequence[r.ComparisonRecord]
) -> tuple[float | None, float | None, float | None]:
    """The row minus the default; a comparison recorded the other way round changes its sign."""
    for one in compared:
        if (one.model, one.reference) == (row, default):
            return one.difference, one.low, one.high
        if (one.model, one.reference) == (default, row) and one.difference is not None:
            return -one.difference, None if one.high is None else -one.high, None if one.low is None else -one.low
    return None, None, None


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


def _strategies(points: Sequence[r.SweepPoint], of: Callable[[r.SweepPoint], float | None]) -> list[c.Curve]:
    found: dict[str, list[c.Point]] = {}
    for p in sorted(points, key=_budget):
        value = of(p)
        if value is not None:
            found.setdefault(p.series, []).append(c.Point(tokens=_budget(p), value=value, name=p.row))
    return [c.Curve(name=name, raw=False, points=tuple(line)) for name, line in found.items()]


def _predictions(points: Sequence[r.SweepPoint]) -> dict[tuple[int, int], float]:
    """What anchors and pairs promise for three branches and more: a(K) + b(K) / N fitted on N <= 2 alone."""
    found: dict[tuple[int, int], float] = {}
    for k in {p.k for p in points if p.k is not None}:
        known = {(frozenset(p.branches), k): _loss(p) for p in points if p.k == k and p.n_branches <= 2}
        try:
            fit = fit_branches(SoupLosses(soups=known), k=k)
        except TrajsoupError:
            continue  # too few branches for a prediction
        found |= {(n, k): fit.loss(n) for n in {p.n_branches for p in points if p.k == k} if n > 2}
    return found


@functools.lru_cache(maxsize=16)  # a live page reads again and again while only training moves
def _fit(label: str, points: tuple[tuple[float, float], ...], until: float) -> c.FittedCurve:
    import numpy as np

    try:
        fit = fit_power_law(points, rank_by=RankBy.LOSS)
    except TrajsoupError as error:
        return c.FittedCurve(label=label, missing=str(error))
    if fit.law is None:
        return c.FittedCurve(label=label, missing=fit.missing)
    computes = np.geomspace(min(fit.computes), max(until, fit.fitted_until), DRAWN)
    low = high = ()
    try:
        band = bootstrap_band(fit, computes=computes.tolist(), resamples=RESAMPLES)
        low, high = tuple(band.low.tolist()), tuple(band.high.tolist())
    except TrajsoupError:
        pass  # too few points to resample: the curve is drawn without a band
    law = fit.law
    return c.FittedCurve(
        label=label,
        computes=tuple(computes.tolist()),
        scores=tuple(float(law.score(x)) for x in computes),
        low=low,
        high=high,
        formula=f"L(C) = {law.asymptote:.4f} + {law.amplitude:.4f} (C / {law.reference:.3g})^-{law.exponent:.3f}",
        r_squared=fit.r_squared,
        last_measured=fit.fitted_until,
        warning=fit.warning,
    )


def _cost(
    plan: r.PlanRecord, validation: r.ValidationRecord, sweeps: Mapping[str, r.SweepRecord]
) -> tuple[tuple[str, str], ...]:
    flops = plan.flops_per_token or 0.0
    scored = len(validation.checkpoints)
    swept = len({p.row for sweep in sweeps.values() for p in sweep.points})
    lines = [
        ("training tokens of all branches", f"{plan.total_tokens:,}"),
        ("training FLOPs", f"{flops * plan.total_tokens:.4g}"),
        ("validation passes to rank checkpoints", f"{scored:,}"),
        ("validation passes of the sweeps", f"{swept:,}"),
    ]
    tokens = plan.corpus.get("validation")
    if tokens and flops and plan.total_tokens:
        spent = (scored + swept) * tokens * flops / 3  # a forward pass is a third of a training token
        lines.append(
            ("validation FLOPs", f"{spent:.4g} ({spent / (flops * plan.total_tokens):.2%} of the training FLOPs)")
        )
    return tuple(lines)


def _budget(point: r.SweepPoint) -> int:
    """The token budget of sec:setup: of all branches together in the Limited setting, of each in the Extended one."""
    return round(point.x) if isinstance(point.x, int | float) else point.horizon or 0


def _loss(point: r.SweepPoint | r.RowRecord) -> float:
    assert point.validation_loss is not None
    return point.validation_loss
