"""The prediction stage: soups of three branches and more, predicted from one and two, against what was measured.

    sweeps/scaling -> a(K) + b(K) / N fitted on N <= 2 -> every (N, K) -> prediction.json (eq:hierarchical)

Validation losses throughout: a prediction serves to plan, and plans are made on validation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trajsoup.core.estimators import BranchFit, SoupLosses, bias_changes, components, effective_counts, fit_branches
from trajsoup.core.pool import ranked
from trajsoup.core.prediction import agreement, best_counts, predicted_loss
from trajsoup.core.splits import Split
from trajsoup.errors import TheoryError
from trajsoup.study.evaluation_section import Sweep, SweepKind
from trajsoup.study.field import Field
from trajsoup.study.records import SweepPoint, SweepRecord
from trajsoup.study.scaling_records import (
    CountFit,
    PredictedCell,
    PredictedCount,
    PredictedSoup,
    PredictionError,
    PredictionRecord,
)
from trajsoup.study.workbench import Workbench

SEEN = 2  # branches of the soups that are fitted


def prediction_stage(bench: Workbench, sweeps: Sequence[Sweep]) -> bool:
    """Make the record, if the sweep that it is made of is among these."""
    name = next((f"sweeps/{s.name}" for s in sweeps if s.kind is SweepKind.SCALING), None)
    if name is None:
        return False
    records = bench.records
    inputs = {key: records.digest(key) for key in ("validation", "screen", name)}
    return records.ensure("prediction", inputs, lambda: predict(records.require(name), bench.field(), inputs=inputs))


def predict(sweep: SweepRecord, field: Field, *, inputs: Mapping[str, str]) -> PredictionRecord:
    """Fit what N <= 2 shows at every K, and compare with every soup of the grid."""
    points = [p for p in sweep.points if p.k is not None and p.validation_loss is not None]
    small = SoupLosses(soups={_soup(p): _loss(p) for p in points if p.n_branches <= SEEN}, ranks=_ranked_losses(field))
    fits: dict[int, BranchFit] = {}
    notes: list[str] = []
    for k in small.counts():
        try:
            fits[k] = fit_branches(small, k=k)
        except TheoryError as error:
            notes.append(f"K={k}: {error}")
    groups: dict[tuple[int, int], list[SweepPoint]] = {}
    for p in points:
        groups.setdefault((p.n_branches, p.k or 1), []).append(p)
    cells = [
        PredictedCell(
            n_branches=n,
            k=k,
            subsets=len(group),
            measured=math.fsum(map(_loss, group)) / len(group),
            predicted=fits[k].loss(n),
            fitted=n <= SEEN,
        )
        for (n, k), group in sorted(groups.items())
        if k in fits
    ]
    soups = _soups(points)
    return PredictionRecord(
        inputs=inputs,
        split=Split.VALIDATION,
        horizon=field.horizon,
        fits=_fits(fits, small, notes),
        cells=tuple(cells),
        soups=soups,
        counts=_counts(fits, cells),
        cells_error=_error([(c.predicted, c.measured) for c in cells if not c.fitted]),
        soups_error=_error([(s.predicted, s.measured) for s in soups]),
        notes=tuple(notes),
    )


def _fits(fits: Mapping[int, BranchFit], losses: SoupLosses, notes: list[str]) -> tuple[CountFit, ...]:
    """Variances at every K; K_eff against the V_inter of the largest K."""
    if not fits:
        return ()
    parts = {}
    for k in fits:
        if k > 1:
            try:
                parts[k] = components(losses, k=k)
            except TheoryError as error:
                notes.append(f"K={k}: {error}")
    counts: Mapping[int, float] = {}
    if parts:
        try:
            counts = effective_counts(fits, v_inter=parts[max(parts)].v_inter)
        except TheoryError as error:
            notes.append(str(error))
    changes = bias_changes(fits)
    return tuple(
        CountFit(
            k=k,
            limit=fit.limit,
            spread=fit.spread,
            v_intra=parts[k].v_intra if k in parts else None,
            v_inter=parts[k].v_inter if k in parts else None,
            k_eff=counts[k] if k in counts and math.isfinite(counts[k]) else None,
            bias_change=changes[k],
        )
        for k, fit in sorted(fits.items())
    )


def _soups(points: Sequence[SweepPoint]) -> tuple[PredictedSoup, ...]:
    """Every soup of three branches and more whose anchors and pairs were scored at its K."""
    found: list[PredictedSoup] = []
    known = {_soup(p): _loss(p) for p in points}
    for p in points:
        if p.n_branches <= SEEN:
            continue
        _, k = _soup(p)
        try:
            predicted = predicted_loss(
                dict.fromkeys(p.branches, 1 / p.n_branches),
                anchors={b: known[frozenset([b]), k] for b in p.branches},
                pairs={names: loss for (names, at), loss in known.items() if len(names) == SEEN and at == k},
            )
        except (TheoryError, KeyError):
            continue  # not every anchor or pair has a loss
        found.append(PredictedSoup(row=p.row, measured=_loss(p), predicted=predicted))
    return tuple(found)


def _counts(fits: Mapping[int, BranchFit], cells: Sequence[PredictedCell]) -> tuple[PredictedCount, ...]:
    found: list[PredictedCount] = []
    for n in sorted({c.n_branches for c in cells}):
        mine = [c for c in cells if c.n_branches == n]
        (best,) = best_counts({c.k: fits[c.k] for c in mine}, n_branches=[n])
        measured = min(mine, key=lambda c: (c.measured, c.k)).k
        found.append(PredictedCount(n_branches=n, predicted=best.k, measured=measured))
    return tuple(found)


def _error(pairs: Sequence[tuple[float, float]]) -> PredictionError | None:
    if not pairs:
        return None
    found = agreement([p for p, _ in pairs], [m for _, m in pairs])
    return PredictionError(
        soups=found.soups,
        mean_error=found.mean_error,
        root_mean_square=found.root_mean_square,
        worst=found.worst,
        r_squared=found.r_squared,
    )


def _ranked_losses(field: Field) -> dict[str, list[float]]:
    """The losses of each branch's checkpoints in the order in which a soup takes them."""
    return {
        pool.branch: [
            c.val_loss
            for c in ranked(pool.until(field.horizon).candidates, rank_by=field.evaluation.rank_by)
            if c.val_loss is not None
        ]
        for pool in field.chosen(field.admitted)
    }


def _soup(point: SweepPoint) -> tuple[frozenset[str], int]:
    assert point.k is not None
    return frozenset(point.branches), point.k


def _loss(point: SweepPoint) -> float:
    assert point.validation_loss is not None
    return point.validation_loss
