"""The theory stage: variances from validation losses, what they promise, and how good such promises are (sec:theory).

soups of every subset of branches at every K, earlier of one and two (most scored to choose) -> fits -> predictions
the same soups, some left out -> held-out predictions against what they scored -> words

Validation losses throughout: a prediction serves to plan, and plans are made on validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from trajsoup.core.budget import Setting
from trajsoup.core.estimators import BranchFit, SoupLosses, bias_changes, components, fit_branches
from trajsoup.core.held_out import HeldOut, larger_soups, new_branches
from trajsoup.core.hierarchy import Terms, measured_terms
from trajsoup.core.methods.table import METHODS
from trajsoup.core.pool import ranked
from trajsoup.core.prediction import BestCount, HorizonLaw, agreement, best_count_falls, best_counts
from trajsoup.core.price import check_allocation
from trajsoup.core.resampling import branch_jackknife
from trajsoup.core.selection import TOP_K
from trajsoup.core.soup import Row, soup_row
from trajsoup.core.splits import Split
from trajsoup.errors import TheoryError
from trajsoup.study.choosing.field import Field
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.theory import (
    CountEstimate,
    HeldOutRecord,
    MeasuredSoup,
    PredictedBest,
    PredictedCell,
    TermsRecord,
    TheoryRecord,
)
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.stages.theory_words import LARGER_SOUPS, NEW_BRANCHES, theory_words
from trajsoup.study.workbench import Workbench

BEYOND = 2  # branches more than there are, for which a best K is predicted
SEEN = 2  # branches of the soups from which the cells of larger ones are predicted


def theory_stage(bench: Workbench) -> bool:
    """Predict from what was scored on validation; with fewer than two admitted branches the record says why not."""
    records = bench.records
    inputs = records.digests(ValidationRecord, ScreenRecord, RowsRecord)
    return records.ensure(TheoryRecord, inputs, lambda: _predict(bench, inputs))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Soups:
    """Soups at one horizon, by the names under which they were scored."""

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
    scores = bench.scorer.validate(list(rows.values()), what="theory", tasks=False)
    losses = {name: score.losses.loss() for name, score in scores.items() if score.losses is not None}
    means = {name: loss for name, loss in losses.items() if math.isfinite(loss)}  # what diverged is left out
    soups = {horizon: _finite(found, means) for horizon, (found, _) in by_horizon.items()}
    limited = _limited(bench, field)
    return predict(
        soups[max(soups)],
        horizon=max(soups),
        earlier=soups,
        means=means,
        field=field,
        inputs=inputs,
        limited=limited,
    )


def _limited(bench: Workbench, field: Field) -> dict[int, dict[int, float]]:
    """N -> K -> mean loss of N branches of T/N: rows that Trajectory Soup (Limited) and Single Merge were chosen from."""
    method = METHODS["trajectory-soup"]
    sizes = range(1, len(field.admitted) + 1)
    stops = field.stops(sizes, setting=Setting.LIMITED, budget=field.horizon)
    options = field.freedom(method, stops).options(TOP_K)
    scores = bench.scorer.validate([option.row for option in options], what="theory", tasks=False)
    found: dict[int, dict[int, list[float]]] = {}
    for option in options:
        losses = scores[option.name].losses
        if losses is not None and option.k is not None and math.isfinite(loss := losses.loss()):
            found.setdefault(len(option.branches), {}).setdefault(option.k, []).append(loss)
    return {n: {k: math.fsum(each) / len(each) for k, each in by_k.items()} for n, by_k in found.items()}


def predict(
    soups: Soups,
    *,
    horizon: int,
    earlier: Mapping[int, Soups],
    means: Mapping[str, float],
    field: Field,
    inputs: Mapping[str, str],
    limited: Mapping[int, Mapping[int, float]] | None = None,
) -> TheoryRecord:
    """Everything that follows from the losses of the soups at the full horizon, and of those at earlier ones."""
    losses = soups.losses(means)
    missing: list[str] = []
    fits = _fits(losses, missing)
    n = len(field.admitted)
    best = best_counts(fits, n_branches=range(1, n + BEYOND + 1)) if fits else ()
    k = next((b.k for b in best if b.n_branches == n), None)
    law = HorizonLaw(fits={h: f[k] for h, s in earlier.items() if k is not None and k in (f := _fits(s.losses(means)))})
    known = sorted(law.fits)
    counts = counts_of(losses, fits)
    cells = _cells(losses)
    unseen = [cell for cell in cells if not cell.fitted]
    larger = larger_soups(losses, ks=losses.counts())
    held_out = {LARGER_SOUPS: larger, NEW_BRANCHES: new_branches(losses, ks=losses.counts())}
    worth = None
    if k is not None:
        worth = statistic_over_branches(losses, fits[k], lambda found: fit_branches(found, k=k).worth_of_branch(n))
    return theory_words(
        TheoryRecord(
            inputs=inputs,
            split=Split.VALIDATION,
            horizon=horizon,
            branches=field.admitted,
            counts=counts,
            cells=cells,
            cells_error=agreement([c.predicted for c in unseen], [c.measured for c in unseen]) if unseen else None,
            soups=() if larger is None else larger.soups,
            best=tuple(_best(b, [c for c in cells if c.n_branches == b.n_branches]) for b in best),
            best_k_falls=best_count_falls(best) if best else None,
            worth_of_branch=worth,
            worth_of_tokens=law.worth_of_tokens(n, tokens=known[-2], more=known[-1] - known[-2])
            if len(known) > 1
            else None,
            budget={str(m): loss for m, loss in law.allocation(horizon, n_branches=range(1, n + 1)).items()},
            held_out=tuple(_held_out(name, found) for name, found in held_out.items() if found is not None),
            words=tuple(missing),
            measured=tuple(_measured(earlier, means)),
            terms=None if k is None else _terms(losses, fits[k], field, soups, k),
            allocation=check_allocation(
                {h: s.losses(means) for h, s in earlier.items()}, total_tokens=horizon, limited=limited or {}
            ),
        )
    )


def _measured(earlier: Mapping[int, Soups], means: Mapping[str, float]) -> Iterator[MeasuredSoup]:
    for horizon, soups in sorted(earlier.items()):
        for (names, k), name in soups.names.items():
            yield MeasuredSoup(horizon=horizon, branches=tuple(sorted(names)), k=k, loss=means[name])


def _terms(losses: SoupLosses, fit: BranchFit, field: Field, soups: Soups, k: int) -> TermsRecord | None:
    """The terms at the K that is best for all branches, with jackknife intervals over branches."""
    at = {c.key: c.tokens for pool in field.pools for c in pool.candidates}
    tokens = {branch: tuple(at[key] for key in keys) for branch, keys in soups.ranks.items()}
    known: dict[tuple[str, ...], Terms] = {}

    def terms(found: SoupLosses) -> Terms:
        branches = found.branches(k)
        if branches not in known:
            known[branches] = measured_terms(found, tokens, k=k)
        return known[branches]

    try:
        whole = terms(losses)
    except TheoryError:
        return None
    asked: dict[str, Callable[[Terms], float]] = {
        "v_intra": lambda found: found.v_intra,
        "v_inter": lambda found: found.v_inter,
        "k_eff": lambda found: found.k_eff[str(k)],
        "limit": lambda found: found.limit,
        "unequal_gain": lambda found: found.unequal_gain,
    }
    between = {
        name: statistic_over_branches(losses, fit, lambda found, of=of: of(terms(found))) for name, of in asked.items()
    }
    known_between = {name: found for name, found in between.items() if found is not None}
    return TermsRecord(**{f.name: getattr(whole, f.name) for f in fields(whole)}, between=known_between)


def soups_at(field: Field, horizon: int) -> tuple[Soups, list[Row]]:
    """Soups of admitted branches at every K, and the ranked checkpoints; before the full horizon, of SEEN at most."""
    rank_by = field.rank_by
    names: dict[tuple[frozenset[str], int], str] = {}
    rows: list[Row] = []
    ranks: dict[str, tuple[str, ...]] = {}
    have = {pool.branch: len(pool.until(horizon).candidates) for pool in field.chosen(field.admitted)}
    most = len(field.admitted) if horizon == field.horizon else SEEN
    for subset in field.subsets(at_most=most):
        for k in field.ks:
            if all(k <= have[branch] for branch in subset):
                name = f"{'+'.join(subset)}/K={k}@{horizon}"
                rows.append(soup_row(field.chosen(subset), k=k, horizon=horizon, rank_by=rank_by, name=name))
                names[frozenset(subset), k] = name
    for pool in field.chosen(field.admitted):
        order = ranked(pool.until(horizon).candidates, rank_by=rank_by)
        rows += [Row(name=c.key, weights={c.key: 1.0}) for c in order]
        ranks[pool.branch] = tuple(c.key for c in order)
    return Soups(names=names, ranks=ranks), rows


def _finite(soups: Soups, means: Mapping[str, float]) -> Soups:
    return Soups(
        names={soup: name for soup, name in soups.names.items() if name in means},
        ranks={branch: tuple(name for name in names if name in means) for branch, names in soups.ranks.items()},
    )


def _fits(losses: SoupLosses, missing: list[str] | None = None) -> dict[int, BranchFit]:
    found: dict[int, BranchFit] = {}
    for k in losses.counts():
        try:
            found[k] = fit_branches(losses, k=k)
        except TheoryError as error:  # fewer than two branches at this K
            if missing is not None:
                missing.append(f"No fit at K={k}: {error}.")
    return found


def counts_of(losses: SoupLosses, fits: Mapping[int, BranchFit]) -> tuple[CountEstimate, ...]:
    """Variances at every K."""
    changes = bias_changes(fits) if fits else {}
    return tuple(
        CountEstimate(
            k=k,
            limit=fit.limit,
            spread=statistic_over_branches(losses, fit, lambda found, k=k: fit_branches(found, k=k).spread)
            or Estimate(value=fit.spread, count=len(fit.branches)),
            v_intra=statistic_over_branches(losses, fit, lambda found, k=k: components(found, k=k).v_intra),
            v_inter=statistic_over_branches(losses, fit, lambda found, k=k: components(found, k=k).v_inter),
            bias_change=changes[k],
        )
        for k, fit in sorted(fits.items())
    )


def _cells(losses: SoupLosses) -> tuple[PredictedCell, ...]:
    """Every (N, K) against what a(K) + b(K) / N promises of it when fitted on small soups alone (eq:hierarchical)."""
    small = {soup: loss for soup, loss in losses.soups.items() if len(soup[0]) <= SEEN}
    fits = _fits(SoupLosses(soups=small))
    groups: dict[tuple[int, int], list[float]] = {}
    for (names, k), loss in losses.soups.items():
        if k in fits:
            groups.setdefault((len(names), k), []).append(loss)
    return tuple(
        PredictedCell(
            n_branches=n,
            k=k,
            subsets=len(group),
            measured=math.fsum(group) / len(group),
            predicted=fits[k].loss(n),
            fitted=n <= SEEN,
        )
        for (n, k), group in sorted(groups.items())
    )


def _best(found: BestCount, cells: Sequence[PredictedCell]) -> PredictedBest:
    return PredictedBest(
        **asdict(found),
        from_pairs=min(cells, key=lambda c: (c.predicted, c.k)).k if cells else None,
        measured=min(cells, key=lambda c: (c.measured, c.k)).k if cells else None,
    )


def statistic_over_branches(
    losses: SoupLosses, fit: BranchFit, statistic: Callable[[SoupLosses], float]
) -> Estimate | None:
    """The statistic with its jackknife interval over branches, or alone where those are two; None: undefined.

    An interval over documents would say how well these branches were measured, and is far too short for what the
    numbers are for: what other branches of the same kind would give.
    """
    try:
        value = statistic(losses)
    except TheoryError:
        return None
    try:
        found = branch_jackknife(fit.branches, lambda branches: statistic(losses.only(branches)))
    except TheoryError:
        return Estimate(value=value, count=len(fit.branches))
    return Estimate(value=value, low=found.low, high=found.high, count=len(fit.branches))


def _held_out(name: str, found: HeldOut) -> HeldOutRecord:
    return HeldOutRecord(name=name, gain=found.gain, share_of_gain=found.share_of_gain, **asdict(found.agreement))
