"""The frontier stage: raw training against merges over compute, with what each point costs in full (app:scaling-fit).

    sweeps/frontier -> costs, two laws with intervals, annotations -> frontier.json

Arithmetic on a sweep: no model is run. Points were chosen on validation, laws are fitted to their test scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from trajsoup.core.frontier import Annotation, SoupPoint, cost, frontier, quality_superiority, scaling_robustness
from trajsoup.core.pool import Pool
from trajsoup.core.scaling import Band, ScalingFit, fit_power_law, law_band
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.study.file.study import Setup
from trajsoup.study.records.estimate import BandPoint, Estimate
from trajsoup.study.records.files import name_of
from trajsoup.study.records.frontier import FittedLaw, FrontierPoint, FrontierRecord, Superiority
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord
from trajsoup.study.sweeps.frontier import RAW_SERIES
from trajsoup.study.sweeps.points import SOUP
from trajsoup.study.sweeps.table import Sweep
from trajsoup.study.workbench import Workbench

SOUP_SERIES = SOUP.label
LEVEL = 0.95
DRAWN, BEYOND = 60, 1.6  # points of a curve, and how far past the largest compute it goes
OF: dict[Signal, Callable[[SweepPoint], Estimate | None]] = {
    Signal.LOSS: lambda p: p.test_loss,
    Signal.ACCURACY: lambda p: p.test_accuracy,
}


def has_frontier(setup: Setup) -> bool:
    """Whether the study sweeps the frontier."""
    return _sweep_of(setup.sweeps) is not None


def frontier_stage(bench: Workbench) -> bool:
    """Make the record of the study's own sweep."""
    return make_frontier(bench, bench.setup.sweeps)


def make_frontier(bench: Workbench, sweeps: Sequence[Sweep]) -> bool:
    """Make the record, if the sweep that it is made of is among these."""
    name = _sweep_of(sweeps)
    if name is None:
        return False
    records = bench.records
    inputs = {**records.digests(PlanRecord), name_of(SweepRecord, name): records.digest(SweepRecord, name)}
    return records.ensure(FrontierRecord, inputs, lambda: _frontier(bench, records.require(SweepRecord, name), inputs))


def _sweep_of(sweeps: Sequence[Sweep]) -> str | None:
    return next((s.name for s in sweeps if s.kind == "frontier"), None)


def _frontier(bench: Workbench, sweep: SweepRecord, inputs: dict[str, str]) -> FrontierRecord:
    plan: PlanRecord = bench.records.require(PlanRecord)
    rank_by = bench.setup.evaluation.rank_by
    per_token = plan.flops_per_token or 1.0  # without a model's FLOPs the axis is in tokens
    improving = {row for series in {p.series for p in sweep.points} for row in _improving(sweep, series, rank_by)}
    laws, annotations = fitted_laws(sweep, per_token)
    return FrontierRecord(
        inputs=inputs,
        flops_per_token=plan.flops_per_token,
        points=tuple(_point(bench, p, plan, improving=p.row in improving) for p in sweep.points),
        laws=laws,
        annotations=annotations,
    )


def fitted_laws(sweep: SweepRecord, per_token: float) -> tuple[tuple[FittedLaw, ...], tuple[Superiority, ...]]:
    """The laws of raw training and of soups by every signal that was scored, and the arrows between them."""
    laws: list[FittedLaw] = []
    annotations: list[Superiority] = []
    for signal, of in OF.items():
        windows = {
            series: fit_window([p for p in sweep.points if p.series == series], signal, saturates=series == RAW_SERIES)
            for series in (RAW_SERIES, SOUP_SERIES)
        }
        fits = {
            series: _fit([(p.budget_tokens * per_token, of(p)) for p in window.inside], signal)
            for series, window in windows.items()
        }
        until = BEYOND * per_token * max((p.budget_tokens for p in sweep.points), default=0)
        laws += [
            replace(
                fitted_law(fit, series, signal, until=until),
                window=windows[series].says,
                beyond=_known([(p.budget_tokens * per_token, of(p)) for p in windows[series].beyond]),
            )
            for series, fit in fits.items()
            if fit is not None
        ]
        annotations += _annotations(fits[RAW_SERIES], fits[SOUP_SERIES], sweep, signal, per_token)
    return tuple(laws), tuple(annotations)


def _improving(sweep: SweepRecord, series: str, rank_by: Signal) -> list[str]:
    """Rows of a series that no cheaper one equals on validation."""
    scored = {
        p.row: value
        for p in sweep.points
        if p.series == series
        and (value := p.validation_loss if rank_by is Signal.LOSS else p.validation_accuracy) is not None
    }
    points = {
        SoupPoint(
            compute=float(p.budget_tokens),
            score=scored[p.row],
            n_branches=p.n_branches,
            horizon=p.horizon or 0,
            k=p.k or 1,
        ): p.row
        for p in sweep.points
        if p.row in scored
    }
    return [points[point] for point in frontier(list(points), rank_by=rank_by, improving=True)]


def _point(bench: Workbench, point: SweepPoint, plan: PlanRecord, *, improving: bool) -> FrontierPoint:
    """Ranking scores every checkpoint of all that was trained to choose; choosing scores every option besides."""
    raw = point.series == RAW_SERIES
    searched = searched_by(point, bench.bare_pools())
    kept = 1 if raw else sum(len(pool.until(searched.get(pool.branch, 0)).candidates) for pool in bench.bare_pools())
    some = next(iter(point.weights))
    return FrontierPoint(
        row=point.row,
        series=point.series,
        budget_tokens=point.budget_tokens,
        n_branches=point.n_branches,
        horizon=point.horizon,
        k=point.k,
        improving=improving,
        cost=cost(
            [point.budget_tokens / point.n_branches] * point.n_branches,
            searched=list(searched.values()),
            flops_per_token=plan.flops_per_token,
            checkpoints=kept,
            bytes_per_checkpoint=bench.checkpoints[some].nbytes,
            validation_passes=0 if raw else kept + point.chosen_on.among,
            validation_tokens=min(plan.corpus.get("validation", 0), bench.setup.evaluation.validation_tokens),
            merged=0 if raw else point.merge_size,
            soups=0 if raw else 1,
        ),
    )


def searched_by(point: SweepPoint, pools: Sequence[Pool]) -> dict[str, int]:
    """Branch -> the tokens that had to be trained to choose this point.

    What was compared says how far. But for raw training branches are free, so every one had to be trained so far, those
    too that the screen rejects there: they were trained to be rejected.
    """
    if point.series == RAW_SERIES:
        return dict(point.chosen_on.trained)
    furthest = max(point.chosen_on.trained.values(), default=0)
    return {pool.branch: min(furthest, sum(run.candidates[-1].tokens for run in pool.runs)) for pool in pools}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitWindow:
    """Which points of a series enter its law."""

    inside: tuple[SweepPoint, ...]
    beyond: tuple[SweepPoint, ...]
    says: str


def fit_window(points: Sequence[SweepPoint], signal: Signal, *, saturates: bool) -> FitWindow:
    """Every point; of raw training those until it saturates, as the paper's raw fit ends at 425B of 600B (app:scaling-fit).

    The paper does not say how it found that point. Ours is where raw training validates best: validation decides, the law
    is fitted to test scores, and what comes later is shown as lying beyond.
    """
    ordered = sorted(points, key=lambda p: p.budget_tokens)
    scored = [p for p in ordered if p.score(signal, Split.VALIDATION) is not None]
    if not saturates or not scored:
        return FitWindow(inside=tuple(ordered), beyond=(), says="every point")
    last = min(scored, key=lambda p: signal.cost(p.score(signal, Split.VALIDATION))).budget_tokens
    inside = tuple(p for p in ordered if p.budget_tokens <= last)
    beyond = tuple(ordered[len(inside) :])
    says = f"until {last:,} tokens, where raw training validates best; {len(beyond)} points lie beyond"
    return FitWindow(inside=inside, beyond=beyond, says=says)


def _fit(points: Sequence[tuple[float, Estimate | None]], signal: Signal) -> ScalingFit | None:
    """None where the signal was not scored."""
    known = _known(points)
    return fit_power_law(known, rank_by=signal) if known else None


def _known(points: Sequence[tuple[float, Estimate | None]]) -> tuple[tuple[float, float], ...]:
    return tuple((c, found.value) for c, found in points if found is not None and found.value is not None)


def fitted_law(fit: ScalingFit, series: str, signal: Signal, *, until: float) -> FittedLaw:
    """The law with its intervals, and as a curve from the first point to the compute `until`."""
    drawn: list[float] = np.geomspace(min(fit.computes), max(until, fit.fitted_until), DRAWN).tolist()
    band = None if fit.law is None else law_band(fit, computes=drawn, level=LEVEL)
    return FittedLaw(
        series=series,
        signal=signal,
        split=Split.TEST,
        points=tuple(zip(fit.computes, fit.measured, strict=True)),
        asymptote=None if fit.law is None else fit.law.asymptote,
        amplitude=None if fit.law is None else fit.law.amplitude,
        exponent=None if fit.law is None else fit.law.exponent,
        reference=None if fit.law is None else fit.law.reference,
        r_squared=fit.r_squared,
        asymptote_interval=None if band is None else band.asymptote,
        exponent_interval=None if band is None else band.exponent,
        level=LEVEL,
        residual_correlation=None if band is None else band.correlation,
        aicc_gain=fit.aicc_gain,
        missing=fit.missing,
        warning=fit.warning,
        curve=_curve(fit, drawn, band),
    )


def _curve(fit: ScalingFit, computes: Sequence[float], band: Band | None) -> tuple[BandPoint, ...]:
    if fit.law is None:
        return ()
    scores = fit.law.scores(computes).tolist()
    none = [None] * len(scores)
    low, high = (none, none) if band is None else (band.low.tolist(), band.high.tolist())
    return tuple(
        BandPoint(x=x, y=y, low=least, high=most) for x, y, least, most in zip(computes, scores, low, high, strict=True)
    )


def _annotations(
    raw: ScalingFit | None, soup: ScalingFit | None, sweep: SweepRecord, signal: Signal, per_token: float
) -> list[Superiority]:
    """The two arrows of the paper's figure: at the compute of one full branch, and at the largest that was measured."""
    if raw is None or raw.law is None or soup is None:
        return []
    budget = max(p.budget_tokens for p in sweep.points if p.series == RAW_SERIES) * per_token
    found: list[Superiority] = []
    if soup.law is not None:
        found.append(_arrow("quality-superiority", signal, quality_superiority(raw, soup, compute=budget)))
    measured = [p for p in sweep.points if p.series == SOUP_SERIES and p.budget_tokens * per_token >= budget]
    last = max(measured, key=lambda p: p.budget_tokens, default=None)
    value = None if last is None else OF[signal](last)
    if last is not None and value is not None and value.value is not None:
        point = SoupPoint(
            compute=last.budget_tokens * per_token,
            score=value.value,
            n_branches=last.n_branches,
            horizon=last.horizon or 0,
            k=last.k or 1,
        )
        found.append(_arrow("scaling-robustness", signal, scaling_robustness(raw, point, compute=budget)))
    return found


def _arrow(name: str, signal: Signal, found: Annotation) -> Superiority:
    return Superiority(name=name, signal=signal, **asdict(found))
