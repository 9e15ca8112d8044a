"""The comparisons of the paper as entries: the main table, and the sweeps that a study file names.

    admitted pools, Evaluation -> entries (rows of W to choose from)        reads no weight and no score but the ranking

All strategies have the same freedom: which admitted branches, which horizon within the budget and, where they have
one, which K. Limited budgets are aggregate (N branches stop at T / N), Extended ones are per branch (sec:setup).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.budget import Setting
from trajsoup.core.coefficients import Coefficients
from trajsoup.core.interpolation import interpolation_rows
from trajsoup.core.pool import Pool, ranked
from trajsoup.core.selection import NEEDS_K, Select
from trajsoup.core.soup import Strategy, soup_row
from trajsoup.errors import SelectionError
from trajsoup.study.entries import Entry, Option
from trajsoup.study.evaluation_section import Evaluation, Sweep, SweepKind

LABELS = {
    Strategy.SINGLE_MERGE: "Single-Trajectory Merge",
    Strategy.MODEL_SOUP: "Model Soup",
    Strategy.FULL_SOUP: "Full Soup",
    Strategy.TRAJECTORY_SOUP: "Trajectory Soup",
}
SOUPS = (Strategy.MODEL_SOUP, Strategy.FULL_SOUP, Strategy.TRAJECTORY_SOUP)
ALLOCATION_SIZE, SAMPLING_SIZE = 16, 12  # the paper's


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What entries are made of: pools with validation scores, the screen's answer, and what may be chosen."""

    pools: tuple[Pool, ...]  # every branch with checkpoints
    admitted: tuple[str, ...]
    baseline: str
    evaluation: Evaluation

    @property
    def horizon(self) -> int:
        """T of the Limited setting: what every admitted branch has reached."""
        return min(max(c.tokens for c in pool.candidates) for pool in self.chosen(self.admitted))

    @property
    def horizons(self) -> tuple[int, ...]:
        """Equal parts of the full horizon, each moved down to a position where every admitted branch saved."""
        shared = sorted(set.intersection(*({c.tokens for c in pool.candidates} for pool in self.chosen(self.admitted))))
        parts = [self.horizon * (i + 1) // self.evaluation.horizons for i in range(self.evaluation.horizons)]
        found = {max((p for p in shared if p <= part), default=0) for part in parts} - {0}
        return tuple(sorted(found)) or (self.horizon,)

    def chosen(self, branches: Sequence[str]) -> tuple[Pool, ...]:
        """The pools of these branches."""
        return tuple(pool for pool in self.pools if pool.branch in branches)

    def subsets(self, *, at_least: int) -> list[tuple[str, ...]]:
        """Subsets of the admitted branches, small ones first."""
        sizes = range(at_least, len(self.admitted) + 1)
        return [subset for size in sizes for subset in itertools.combinations(self.admitted, size)]


def main_entries(field: Field) -> tuple[Entry, ...]:
    """tab:tiny-mid-train-main and tab:exp-merge-mid-train."""
    everything = [c for pool in field.chosen(field.admitted) for c in pool.candidates]
    rank_by = field.evaluation.rank_by
    best = ranked(tuple(everything), rank_by=rank_by)
    last = max(field.chosen([field.baseline])[0].candidates, key=lambda c: c.tokens)
    entries = [
        Entry(
            name="raw-final",
            label=f"Raw, final ({field.baseline})",
            strategy="raw",
            options=(_one(last.key, last.branch, last.tokens),),
            select="final",
        ),
        Entry(
            name="raw-best",
            label="Raw, best checkpoint",
            strategy="raw",
            options=tuple(_one(c.key, c.branch, c.tokens) for c in best),
            free=("branch", "checkpoint"),
        ),
    ]
    horizon = field.horizon
    for pool in field.pools:
        options = _options(field, Strategy.SINGLE_MERGE, [(pool.branch,)], budget=None)
        if options:
            label = f"Single EXP Merge ({pool.branch})"
            entries.append(
                _entry(Strategy.SINGLE_MERGE, f"single/{pool.branch}", label, options, free=("k", "horizon"))
            )
    alone = [(branch,) for branch in field.admitted]
    options = _options(field, Strategy.SINGLE_MERGE, alone, budget=horizon)
    entries.append(
        _entry(
            Strategy.SINGLE_MERGE,
            "single-merge",
            LABELS[Strategy.SINGLE_MERGE],
            options,
            free=("branch", "k", "horizon"),
        )
    )
    for strategy in SOUPS:
        for setting in Setting:
            budget = horizon if setting is Setting.LIMITED else None
            options = _options(field, strategy, field.subsets(at_least=2), budget=budget)
            if options:
                free = ("branches", "horizon") + (("k",) if strategy.select in NEEDS_K else ())
                label = f"{LABELS[strategy]} ({setting.value.title()})"
                entries.append(_entry(strategy, f"{strategy.value}/{setting.value}", label, options, free, setting))
    return tuple(entries)


def sweep_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """The entries of one named comparison."""
    builders: Mapping[SweepKind, Callable[[Field, Sweep], tuple[Entry, ...]]] = {
        SweepKind.HORIZONS: _horizons,
        SweepKind.COEFFICIENTS: _coefficients,
        SweepKind.SELECTIONS: _selections,
        SweepKind.ALLOCATION: _allocation,
        SweepKind.SAMPLING: _sampling,
        SweepKind.SCALING: _scaling,
        SweepKind.INTERPOLATION: _interpolation,
    }
    entries = builders[sweep.kind](field, sweep)
    if not entries:
        raise SelectionError(
            f"sweep {sweep.name!r} has nothing to compare: it needs two admitted branches with enough checkpoints"
        )
    return entries


TITLES: Mapping[SweepKind, tuple[str, str, str]] = {  # title, label of the paper, axis
    SweepKind.HORIZONS: ("All strategies at every horizon", "fig:traj-soup-performance-curves", "token budget"),
    SweepKind.COEFFICIENTS: ("Merging coefficients", "tab:tiny-coefficient-selection-ablation", "coefficients"),
    SweepKind.SELECTIONS: ("Checkpoint selection", "tab:tiny-coefficient-selection-ablation", "selection"),
    SweepKind.ALLOCATION: ("Allocation between two branches", "fig:traj-soup-asym-allocation", "checkpoints of each"),
    SweepKind.SAMPLING: ("Dense single trajectory, sparse soup", "fig:traj-soup-sample-ablation", "pool"),
    SweepKind.SCALING: ("The (N, K) grid over branch subsets", "fig:traj-soup-trajectory-scaling", "merge size N K"),
    SweepKind.INTERPOLATION: ("Interpolation of two anchors", "eq:interpolation", "lambda"),
}


def _horizons(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """Every strategy at every horizon; membership is all admitted branches, only K is free."""
    entries: list[Entry] = []
    n = len(field.admitted)
    for h in field.horizons:
        for pool in field.chosen(field.admitted):
            name = f"horizons/single/{pool.branch}@{h}"
            options = _fixed(field, Strategy.SINGLE_MERGE, (pool.branch,), h)
            entries.append(
                _point(name, Strategy.SINGLE_MERGE, options, series=f"Single EXP Merge ({pool.branch})", x=h)
            )
        if n < 2:
            continue
        for strategy in SOUPS:
            for setting in Setting:
                at = h if setting is Setting.EXTENDED else _last_by(field, h // n)
                options = _fixed(field, strategy, field.admitted, at) if at else ()
                if options:
                    name = f"horizons/{strategy.value}/{setting.value}@{h}"
                    series = f"{LABELS[strategy]} ({setting.value.title()})"
                    entries.append(_point(name, strategy, options, series=series, x=h, setting=setting))
    return tuple(entries)


def _coefficients(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    return tuple(
        _point(
            f"coefficients/{scheme.value}",
            Strategy.TRAJECTORY_SOUP,
            _fixed(field, Strategy.TRAJECTORY_SOUP, field.admitted, field.horizon, scheme=scheme),
            series="coefficients",
            x=scheme.value,
            coefficients=scheme.value,
        )
        for scheme in Coefficients
    )


def _selections(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    rules = (Select.TOP_K, Select.GLOBAL, Select.TAIL_K, Select.ALL, Select.FINAL)
    return tuple(
        _point(
            f"selections/{rule.value}",
            Strategy.TRAJECTORY_SOUP,
            _fixed(field, Strategy.TRAJECTORY_SOUP, field.admitted, field.horizon, rule=rule),
            series="selection",
            x=rule.value,
            select=rule.value,
        )
        for rule in rules
    )


def _allocation(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """k1 : k2 with k1 + k2 fixed; every checkpoint weighs the same."""
    first, second = _pair(field, sweep)
    room = min(len(first.candidates), len(second.candidates))
    size = sweep.merge_size or max(min(ALLOCATION_SIZE, room) // 2 * 2, 2)
    entries: list[Entry] = []
    step = 2 if size >= 8 else 1
    for k1 in range(step, size, step):
        k2 = size - k1
        if k1 > len(first.candidates) or k2 > len(second.candidates) or k2 < 1:
            continue
        best = [ranked(p.candidates, rank_by=field.evaluation.rank_by)[:k] for p, k in ((first, k1), (second, k2))]
        weights = {c.key: 1 / size for group in best for c in group}
        option = _option(weights, None, field.horizon, (first.branch, second.branch))
        name = f"{sweep.name}/{k1}:{k2}"
        series = f"{first.branch}:{second.branch}"
        entries.append(_point(name, Strategy.TRAJECTORY_SOUP, (option,), series=series, x=f"{k1}:{k2}"))
    return tuple(entries)


def _sampling(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """All checkpoints of one branch against every second one of two: the same pool size, the same merge size."""
    pair = _pair(field, sweep)
    count = min(len(pool.candidates) for pool in pair)
    size = sweep.merge_size or max(min(SAMPLING_SIZE, count // 2) // 2 * 2, 2)
    if size % 2 or size > count or size // 2 > count // 2:
        raise SelectionError(f"sweep {sweep.name!r}: merge_size {size} must be even and at most {count // 2 * 2}")
    entries: list[Entry] = []
    for pool in pair:
        row = soup_row([pool], k=size, rank_by=field.evaluation.rank_by)
        option = _option(row.weights, size, field.horizon, (pool.branch,))
        name = f"{sweep.name}/dense/{pool.branch}"
        entries.append(_point(name, Strategy.SINGLE_MERGE, (option,), series="dense", x=pool.branch))
    sparse = [Pool(branch=pool.branch, candidates=pool.candidates[1::2]) for pool in pair]
    row = soup_row(sparse, k=size // 2, rank_by=field.evaluation.rank_by)
    option = _option(row.weights, size // 2, field.horizon, tuple(pool.branch for pool in pair))
    name = f"{sweep.name}/sparse"
    both = "+".join(pool.branch for pool in pair)
    return (*entries, _point(name, Strategy.TRAJECTORY_SOUP, (option,), series="sparse", x=both))


def _scaling(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for subset in field.subsets(at_least=1):
        for option in _fixed(field, Strategy.TRAJECTORY_SOUP, subset, field.horizon):
            assert option.k is not None
            name = f"{sweep.name}/{'+'.join(subset)}/K={option.k}"
            size = float(len(subset) * option.k)
            reported = len(subset) in (1, len(field.admitted))
            entries.append(
                _point(name, Strategy.TRAJECTORY_SOUP, (option,), series=f"N={len(subset)}", x=size, reported=reported)
            )
    return tuple(entries)


def _interpolation(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """From the anchor of one branch to that of another at every horizon; only the full one is reported on test."""
    pair = _pair(field, sweep)
    k = middle_k(field, pair)
    if k is None:
        return ()
    names = tuple(p.branch for p in pair)
    entries: list[Entry] = []
    for h in sorted({*field.horizons, field.horizon}):
        if any(len(p.until(h).candidates) < k for p in pair):
            continue
        a, b = (soup_row([p], k=k, horizon=h, rank_by=field.evaluation.rank_by, name=p.branch) for p in pair)
        folder = sweep.name if h == field.horizon else f"{sweep.name}/{h}"
        entries += [
            _point(
                f"{folder}/{row.name}",
                Strategy.TRAJECTORY_SOUP,
                (_option(row.weights, k, h, names),),
                series="~".join(names),
                x=float(row.name.rpartition("@")[2]),
                reported=h == field.horizon,
            )
            for row in interpolation_rows(a, b)
        ]
    return tuple(entries)


def middle_k(field: Field, pools: Sequence[Pool]) -> int | None:
    """The K in the middle of those that all these branches have at the full horizon; None where they have none."""
    have = min(len(pool.until(field.horizon).candidates) for pool in pools)
    usable = [k for k in field.evaluation.ks if k <= have]
    return usable[len(usable) // 2] if usable else None


def _options(
    field: Field, strategy: Strategy, subsets: Sequence[tuple[str, ...]], *, budget: int | None
) -> tuple[Option, ...]:
    """Every horizon within the budget and every K; the budget is aggregate, None leaves each branch its full horizon."""
    found: list[Option] = []
    for subset in subsets:
        limit = field.horizon if budget is None else _last_by(field, budget // len(subset))
        allowed = {h for h in field.horizons if h <= limit} | ({limit} if limit else set())
        for h in sorted(allowed):
            found += _fixed(field, strategy, subset, h)
    return tuple({option.name: option for option in found}.values())


def _fixed(
    field: Field,
    strategy: Strategy,
    branches: tuple[str, ...],
    horizon: int,
    *,
    rule: Select | None = None,
    scheme: Coefficients = Coefficients.EQUAL,
) -> tuple[Option, ...]:
    """The options that differ in K alone."""
    pools = field.chosen(branches)
    rule = rule or strategy.select
    have = min(len(pool.until(horizon).candidates) for pool in pools)
    if have == 0:
        return ()
    ks: list[int | None] = [k for k in field.evaluation.ks if k <= have] if rule in NEEDS_K else [None]
    found: list[Option] = []
    for k in ks:
        row = soup_row(pools, k=k, rule=rule, scheme=scheme, horizon=horizon, rank_by=field.evaluation.rank_by)
        found.append(_option(row.weights, k, horizon, branches))
    return tuple(found)


def _option(weights: Mapping[str, float], k: int | None, horizon: int, branches: tuple[str, ...]) -> Option:
    return Option(weights=dict(weights), k=k, horizon=horizon, branches=branches, budget_tokens=horizon * len(branches))


def _one(key: str, branch: str, tokens: int) -> Option:
    return Option(weights={key: 1.0}, k=None, horizon=tokens, branches=(branch,), budget_tokens=tokens)


def _entry(
    strategy: Strategy,
    name: str,
    label: str,
    options: tuple[Option, ...],
    free: tuple[str, ...],
    setting: Setting | None = None,
) -> Entry:
    return Entry(
        name=name,
        label=label,
        strategy=strategy.value,
        options=options,
        free=free,
        setting=setting,
        select=strategy.select.value,
    )


def _point(
    name: str,
    strategy: Strategy,
    options: tuple[Option, ...],
    *,
    series: str,
    x: float | str,
    setting: Setting | None = None,
    select: str = "top-k",
    coefficients: str = "equal",
    reported: bool = True,
) -> Entry:
    return Entry(
        name=name,
        label=f"{series} {x}",
        strategy=strategy.value,
        options=options,
        free=("k",) if len(options) > 1 else (),
        setting=setting,
        select=select,
        coefficients=coefficients,
        series=series,
        x=x,
        reported=reported,
    )


def _pair(field: Field, sweep: Sweep) -> tuple[Pool, Pool]:
    names = sweep.branches or field.admitted[:2]
    if missing := [name for name in names if name not in {pool.branch for pool in field.pools}]:
        raise SelectionError(f"sweep {sweep.name!r} names the branch {missing[0]!r}, which the study does not have")
    if len(names) < 2:
        raise SelectionError(f"sweep {sweep.name!r} needs two branches, and {len(names)} passed the screen")
    found = field.chosen(names)
    return found[0], found[1]


def _last_by(field: Field, tokens: int) -> int:
    """The last position by `tokens` at which every admitted branch saved; 0 where there is none."""
    shared = set.intersection(*({c.tokens for c in pool.candidates} for pool in field.chosen(field.admitted)))
    return max((p for p in shared if p <= tokens), default=0)
