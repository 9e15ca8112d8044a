"""The theory stage: variances from validation losses, what they promise, and how good such promises are (sec:theory).

soups of every subset of branches, K and horizon (scored to choose, so known) -> fits -> intervals, predictions
the same soups, some left out -> held-out predictions against what they scored -> words
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trajsoup.core.estimators import BranchFit, SoupLosses, bias_changes, components, effective_counts, fit_branches
from trajsoup.core.held_out import HeldOut, larger_soups, new_branches
from trajsoup.core.pool import ranked
from trajsoup.core.prediction import HorizonLaw, best_count_falls, best_counts
from trajsoup.core.resampling import LossTable, branch_jackknife, document_bootstrap
from trajsoup.core.scores import DocumentLosses
from trajsoup.core.soup import Row, soup_row
from trajsoup.core.splits import Split
from trajsoup.errors import TheoryError
from trajsoup.study.field import Field
from trajsoup.study.records import CountEstimate, Estimate, HeldOutRecord, PredictedBest, TheoryRecord
from trajsoup.study.theory_words import theory_words
from trajsoup.study.workbench import Workbench

RESAMPLES = 200
BEYOND = 2  # branches more than there are, for which a best K is predicted


def theory_stage(bench: Workbench) -> bool:
    """Predict from what was scored on validation; with fewer than two admitted branches the record says why not."""
    records = bench.records
    inputs = {"screen": records.digest("screen"), "rows": records.digest("rows")}
    return records.ensure("theory", inputs, lambda: _predict(bench, inputs))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Soups:
    """Soups at one horizon: their names in a table of losses by document."""

    names: Mapping[tuple[frozenset[str], int], str]
    ranks: Mapping[str, tuple[str, ...]]  # branch -> names of its checkpoints, best first

    def losses(self, means: Mapping[str, float]) -> SoupLosses:
        """What the estimators take, from the mean losses by name."""
        return SoupLosses(
            soups={soup: means[name] for soup, name in self.names.items()},
            ranks={branch: [means[name] for name in names] for branch, names in self.ranks.items()},
        )


def _predict(bench: Workbench, inputs: Mapping[str, str]) -> TheoryRecord:
    field = bench.field()
    by_horizon = {horizon: soups_at(field, horizon) for horizon in field.horizons}
    rows = {row.name: row for _, found in by_horizon.values() for row in found}
    scores = bench.scorer.validate(list(rows.values()), what="theory")
    table = _table({name: score.losses for name, score in scores.items() if score.losses is not None})
    means = table.mean()
    soups = {horizon: _finite(found, means) for horizon, (found, _) in by_horizon.items()}
    return predict(soups[max(soups)], horizon=max(soups), earlier=soups, table=table, field=field, inputs=inputs)


def predict(
    soups: Soups,
    *,
    horizon: int,
    earlier: Mapping[int, Soups],
    table: LossTable,
    field: Field,
    inputs: Mapping[str, str],
) -> TheoryRecord:
    """Everything that follows from the losses of the soups at the full horizon, and of those at earlier ones."""
    means = table.mean()
    losses = soups.losses(means)
    fits = _fits(losses)
    n = len(field.admitted)
    best = best_counts(fits, n_branches=range(1, n + BEYOND + 1)) if fits else ()
    k = next((b.k for b in best if b.n_branches == n), None)
    law = HorizonLaw(fits={h: f[k] for h, s in earlier.items() if k is not None and k in (f := _fits(s.losses(means)))})
    known = sorted(law.fits)

    def spread_of(count: int) -> Callable[[Mapping[str, float]], float]:
        return lambda m: fit_branches(soups.losses(m), k=count).spread

    largest = max((count for count in fits if count > 1), default=None)
    v_intra = v_inter = None
    if largest is not None:
        v_intra = _interval(table, lambda m: components(soups.losses(m), k=largest).v_intra)
        v_inter = _interval(table, lambda m: components(soups.losses(m), k=largest).v_inter)
    counts = _effective(fits, v_inter)
    record = TheoryRecord(
        inputs=inputs,
        split=Split.VALIDATION,
        horizon=horizon,
        branches=field.admitted,
        counts=tuple(
            CountEstimate(
                k=count,
                limit=fit.limit,
                spread=_interval(table, spread_of(count)) or Estimate(value=fit.spread, count=len(table.tokens)),
                spread_over_branches=_over_branches(losses, fit),
                k_eff=counts.get(count),
                bias_change=bias_changes(fits)[count],
            )
            for count, fit in sorted(fits.items())
        ),
        v_intra=v_intra,
        v_inter=v_inter,
        best=tuple(
            PredictedBest(n_branches=b.n_branches, k=b.k, loss=b.loss, measured=b.n_branches <= n) for b in best
        ),
        best_k_falls=best_count_falls(best) if best else None,
        worth_of_branch=None
        if k is None
        else _interval(table, lambda m: fit_branches(soups.losses(m), k=k).worth_of_branch(n)),
        worth_of_tokens=law.worth_of_tokens(n, tokens=known[-2], more=known[-1] - known[-2])
        if len(known) > 1
        else None,
        budget={str(m): loss for m, loss in law.allocation(horizon, n_branches=range(1, n + 1)).items()},
        held_out=tuple(
            _held_out(name, found)
            for name, found in (
                ("larger soups", larger_soups(losses, ks=losses.counts())),
                ("new branches", new_branches(losses, ks=losses.counts())),
            )
            if found is not None
        ),
        words=(),
    )
    return theory_words(record)


def soups_at(field: Field, horizon: int) -> tuple[Soups, list[Row]]:
    """Every subset of the admitted branches at every K, and the ranked checkpoints; those are what choosing scored."""
    rank_by = field.evaluation.rank_by
    names: dict[tuple[frozenset[str], int], str] = {}
    rows: list[Row] = []
    ranks: dict[str, tuple[str, ...]] = {}
    have = {pool.branch: len(pool.until(horizon).candidates) for pool in field.chosen(field.admitted)}
    for subset in field.subsets(at_least=1):
        for k in field.evaluation.ks:
            if all(k <= have[branch] for branch in subset):
                name = f"{'+'.join(subset)}/K={k}@{horizon}"
                rows.append(soup_row(field.chosen(subset), k=k, horizon=horizon, rank_by=rank_by, name=name))
                names[frozenset(subset), k] = name
    for pool in field.chosen(field.admitted):
        order = ranked(pool.until(horizon).candidates, rank_by=rank_by)
        rows += [Row(name=c.key, weights={c.key: 1.0}) for c in order]
        ranks[pool.branch] = tuple(c.key for c in order)
    return Soups(names=names, ranks=ranks), rows


def _table(losses: Mapping[str, DocumentLosses]) -> LossTable:
    """Documents by models. A model that diverged is left out: its loss is no number."""
    kept = {name: found for name, found in losses.items() if np.isfinite(found.nll).all()}
    if not kept:
        return LossTable(names=(), losses=np.zeros((0, 1)), tokens=np.ones(1))
    tokens = next(iter(kept.values())).targets.astype(np.float64)
    used = tokens > 0
    return LossTable(
        names=tuple(kept),
        losses=np.array([found.nll[used] / tokens[used] for found in kept.values()]),
        tokens=tokens[used],
    )


def _finite(soups: Soups, means: Mapping[str, float]) -> Soups:
    return Soups(
        names={soup: name for soup, name in soups.names.items() if name in means},
        ranks={branch: tuple(name for name in names if name in means) for branch, names in soups.ranks.items()},
    )


def _fits(losses: SoupLosses) -> dict[int, BranchFit]:
    found: dict[int, BranchFit] = {}
    for k in losses.counts():
        try:
            found[k] = fit_branches(losses, k=k)
        except TheoryError:
            continue  # fewer than two branches at this K
    return found


def _effective(fits: Mapping[int, BranchFit], v_inter: Estimate | None) -> dict[int, float]:
    if v_inter is None or v_inter.value is None:
        return {}
    try:
        found = effective_counts(fits, v_inter=v_inter.value)
    except TheoryError:
        return {}
    return {k: count for k, count in found.items() if math.isfinite(count)}


def _interval(table: LossTable, statistic: Callable[[Mapping[str, float]], float]) -> Estimate | None:
    """The statistic with its interval over documents, or alone where documents are too few; None: undefined."""
    documents = len(table.tokens)
    try:
        found = document_bootstrap(table, statistic, resamples=RESAMPLES)
    except TheoryError:
        try:
            return Estimate(value=statistic(table.mean()), count=documents)
        except TheoryError:
            return None
    return Estimate(value=found.estimate, low=found.low, high=found.high, count=documents)


def _over_branches(losses: SoupLosses, fit: BranchFit) -> tuple[float, float] | None:
    def spread(branches: Sequence[str]) -> float:
        return fit_branches(losses.only(branches), k=fit.k).spread

    try:
        found = branch_jackknife(fit.branches, spread)
    except TheoryError:
        return None  # fewer than three branches
    return found.low, found.high


def _held_out(name: str, found: HeldOut) -> HeldOutRecord:
    a = found.agreement
    return HeldOutRecord(
        name=name,
        soups=a.soups,
        root_mean_square=a.root_mean_square,
        worst=a.worst,
        mean_error=a.mean_error,
        gain=found.gain,
        share_of_gain=found.share_of_gain,
        r_squared=a.r_squared,
    )
