"""The (N, K) surface, what theory predicted, the compute frontier with its laws, and the full cost."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping

from trajsoup.core.frontier import FullCost
from trajsoup.core.scaling import bootstrap_band, fit_power_law
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.errors import TrajsoupError
from trajsoup.report import contents as c
from trajsoup.report.reading_curves import score_of
from trajsoup.study.records import results as r
from trajsoup.study.records.scaling import FrontierRecord, TheoryRecord

DRAWN = 60  # points of a fitted curve
BEYOND = 1.6  # how far past the last measured compute a fit is drawn
RESAMPLES = 200  # refits for a band: enough for its outline
RAW = "raw"  # strategy of points that are checkpoints as they come


def read_surface(scaling: r.SweepRecord | None) -> c.Surface | None:
    """The (N, K) grid on validation; a cell of several subsets of branches is their mean, named by its best one."""
    groups: dict[tuple[int, int], list[r.SweepPoint]] = {}
    for p in () if scaling is None else scaling.points:
        if p.k is not None and p.validation_loss is not None:
            groups.setdefault((p.n_branches, p.k), []).append(p)
    if not groups:
        return None
    return c.Surface(
        rank_by=Signal.LOSS,
        split=Split.VALIDATION.value,
        cells=tuple(
            c.SurfaceCell(
                n_branches=n,
                k=k,
                value=statistics.fmean(_loss(p) for p in points),
                name=min(points, key=_loss).row,
                subsets=len(points),
            )
            for (n, k), points in sorted(groups.items())
        ),
    )


def read_theory(record: TheoryRecord | None, scaling: r.SweepRecord | None) -> c.Theory | None:
    """What theory predicts, with the rows of the sweep that are the same soups; None for fewer than two branches."""
    if record is None or not record.counts:
        return None
    points = () if scaling is None else scaling.points
    rows = {(frozenset(p.branches), p.k): p.row for p in points if p.k is not None and p.horizon == record.horizon}
    return c.Theory(record=record, rows=rows)


def read_frontier(record: FrontierRecord | None, sweep: r.SweepRecord | None) -> tuple[c.Frontier, ...]:
    """Raw training, single merges and soups over compute, on test, with two laws; one picture for each signal."""
    if record is None or sweep is None:
        return ()
    found: list[c.Frontier] = []
    points = {p.row: p for p in sweep.points}
    per_token = record.flops_per_token or 1.0
    for rank_by in Signal:
        drawn: list[c.ComputePoint] = []
        for one in record.points:
            point = points.get(one.row)
            score = None if point is None else score_of(point, rank_by, Split.TEST)
            if point is not None and score is not None:
                drawn.append(
                    c.ComputePoint(
                        name=one.row,
                        label=" + ".join(point.branches),
                        series=one.series,
                        raw=point.strategy == RAW,
                        compute=one.budget_tokens * per_token,
                        score=score,
                        n_branches=point.n_branches,
                        k=point.k,
                        on_frontier=one.improving,
                    )
                )
        last = max((p.compute for p in drawn), default=0.0)
        laws = [law for law in record.laws if law.signal.value == rank_by.value]
        if drawn:
            found.append(
                c.Frontier(
                    rank_by=rank_by,
                    split=Split.TEST.value,
                    in_flops=record.flops_per_token is not None,
                    points=tuple(drawn),
                    fits=tuple(_fit(law.series, law.points, rank_by, last * BEYOND) for law in laws),
                    arrows=tuple(
                        c.Arrow(
                            name=one.name.replace("-", " "),
                            start=(one.raw_compute, one.raw_score),
                            end=(one.soup_compute, one.soup_score),
                            gain=one.gain,
                            extrapolated=one.raw_extrapolated or one.soup_extrapolated,
                        )
                        for one in record.annotations
                        if one.signal.value == rank_by.value
                    ),
                )
            )
    return tuple(found)


def read_costs(record: FrontierRecord | None) -> tuple[tuple[str, FullCost], ...]:
    """What the last model of each series costs in full."""
    last = {} if record is None else {p.series: p.cost for p in sorted(record.points, key=lambda p: p.budget_tokens)}
    return tuple(last.items())


def read_spent(
    plan: r.PlanRecord | None, validation: r.ValidationRecord | None, sweeps: Mapping[str, r.SweepRecord]
) -> tuple[tuple[str, str], ...]:
    """What the whole study spent, ablations included."""
    if plan is None:
        return ()
    scored = 0 if validation is None else len(validation.checkpoints)
    swept = len({p.row for sweep in sweeps.values() for p in sweep.points})
    lines = [
        ("training tokens of all branches", f"{plan.total_tokens:,}"),
        ("training FLOPs", "not known" if plan.train_flops is None else f"{plan.train_flops:.4g}"),
        ("validation passes to rank checkpoints", f"{scored:,}"),
    ]
    return (*lines, ("rows of W that the sweeps compare", f"{swept:,}")) if swept else tuple(lines)


@functools.lru_cache(maxsize=16)  # a live page reads again and again while only training moves
def _fit(label: str, points: tuple[tuple[float, float], ...], rank_by: Signal, until: float) -> c.FittedCurve:
    """The law that the record holds, fitted again to its points: a band is a curve, and the record keeps numbers."""
    import numpy as np

    try:
        fit = fit_power_law(points, rank_by=rank_by)
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
        formula=f"{law.asymptote:.4f} {'+' if rank_by is Signal.LOSS else '−'} {law.amplitude:.4f} "
        f"(C / {law.reference:.3g})^-{law.exponent:.3f}",
        r_squared=fit.r_squared,
        last_measured=fit.fitted_until,
        warning=fit.warning,
    )


def _loss(point: r.SweepPoint) -> float:
    assert point.validation_loss is not None
    return point.validation_loss
