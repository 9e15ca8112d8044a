"""The ablations of the paper as entries: coefficients, selections, allocation, sampling density, (N, K), interpolation.

Field, Sweep (branches, merge size) -> entries (rows of W)
"""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.coefficients import Coefficients
from trajsoup.core.interpolation import interpolation_rows
from trajsoup.core.pool import Pool, ranked
from trajsoup.core.selection import NEEDS_K, Select
from trajsoup.core.soup import Strategy, soup_row
from trajsoup.errors import SelectionError
from trajsoup.study.choosing.entries import Axis, Entry, Option
from trajsoup.study.choosing.field import Field, option_of, options_at
from trajsoup.study.file.sweeps import Sweep

ALLOCATION_SIZE, SAMPLING_SIZE = 16, 12  # the paper's
RULES = (Select.TOP_K, Select.GLOBAL, Select.TAIL_K, Select.ALL, Select.FINAL)  # the paper's, and Model Soup's


def coefficient_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """The coefficients of tab:tiny-coefficient-selection-ablation; K is free for each."""
    return tuple(
        _point(
            f"{sweep.name}/{scheme.value}",
            options_at(field, Strategy.TRAJECTORY_SOUP, field.admitted, field.horizon, scheme=scheme),
            Axis(series="coefficients", x=scheme.value),
            coefficients=scheme.value,
        )
        for scheme in Coefficients
    )


def selection_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """The selections of tab:tiny-coefficient-selection-ablation; K is free where a rule has one."""
    return tuple(
        _point(
            f"{sweep.name}/{rule.value}",
            options_at(field, Strategy.TRAJECTORY_SOUP, field.admitted, field.horizon, rule=rule),
            Axis(series="selection", x=rule.value),
            select=rule.value,
            free=("k",) if rule in NEEDS_K else (),
        )
        for rule in RULES
    )


def allocation_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """fig:traj-soup-asym-allocation: k1 : k2 with k1 + k2 fixed; every checkpoint weighs the same."""
    third = field.admitted[min(2, len(field.admitted) - 1) :][:1]  # the paper pairs EXP1 with EXP3
    pair = _pair(field, sweep, (*field.admitted[:1], *third))
    if pair is None:
        return ()
    first, second = pair
    room = [ranked(p.until(field.horizon).candidates, rank_by=field.evaluation.rank_by) for p in (first, second)]
    least = min(map(len, room))
    size = sweep.merge_size or max(min(ALLOCATION_SIZE, least) // 2 * 2, 2)
    step = 2 if size >= 8 else 1
    entries: list[Entry] = []
    for k1 in range(step, size, step):
        k2 = size - k1
        if k1 <= len(room[0]) and k2 <= len(room[1]):
            weights = {c.key: 1 / size for best, k in zip(room, (k1, k2), strict=True) for c in best[:k]}
            option = option_of(weights, k=None, horizon=field.horizon, branches=(first.branch, second.branch))
            at = Axis(series=f"{first.branch}:{second.branch}", x=f"{k1}:{k2}")
            entries.append(_point(f"{sweep.name}/{k1}:{k2}", (option,), at))
    return tuple(entries)


def sampling_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """fig:traj-soup-sample-ablation: all checkpoints of one branch against every second one of two, at every horizon.

    Pool size and merge size are the same on both sides.
    """
    pair = _pair(field, sweep, field.admitted[:2])
    if pair is None:
        return ()
    count = min(len(pool.until(field.horizon).candidates) for pool in pair)
    size = sweep.merge_size or max(min(SAMPLING_SIZE, count // 2) // 2 * 2, 2)
    if sweep.merge_size is not None and (size % 2 or size > count // 2 * 2):
        raise SelectionError(f"sweep {sweep.name!r}: merge_size {size} must be even and at most {count // 2 * 2}")
    both = "+".join(pool.branch for pool in pair)
    sparse = [Pool(branch=pool.branch, candidates=pool.candidates[1::2]) for pool in pair]
    entries: list[Entry] = []
    for h in field.horizons:
        if any(len(dense.until(h).candidates) < size for dense in pair):
            continue
        for kind, pools, k in [*(("dense", [p], size) for p in pair), ("sparse", sparse, size // 2)]:
            row = soup_row(pools, k=k, horizon=h, rank_by=field.evaluation.rank_by)
            names = tuple(pool.branch for pool in pools)
            option = option_of(row.weights, k=k, horizon=h, branches=names)
            at = Axis(series=f"{kind} {both if kind == 'sparse' else names[0]}", x=float(h))
            strategy = Strategy.TRAJECTORY_SOUP if kind == "sparse" else Strategy.SINGLE_MERGE
            entries.append(_point(f"{sweep.name}/{kind}/{'+'.join(names)}@{h}", (option,), at, strategy=strategy))
    return tuple(entries)


def scaling_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """fig:traj-soup-trajectory-scaling: every subset of branches at every K, over the merge size."""
    return tuple(
        _point(
            f"{sweep.name}/{'+'.join(subset)}/K={option.k}",
            (option,),
            Axis(series=f"N={len(subset)}", x=float(len(option.weights))),
        )
        for subset in field.subsets(at_least=1)
        for option in options_at(field, Strategy.TRAJECTORY_SOUP, subset, field.horizon)
    )


def interpolation_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """eq:interpolation: from the anchor of one branch to that of another, at the K in the middle of the grid."""
    pair = _pair(field, sweep, field.admitted[:2])
    if pair is None:
        return ()
    usable = [o.k for o in options_at(field, Strategy.TRAJECTORY_SOUP, tuple(p.branch for p in pair), field.horizon)]
    if not usable:
        return ()
    k = usable[len(usable) // 2]
    anchors = [soup_row([p], k=k, horizon=field.horizon, rank_by=field.evaluation.rank_by, name=p.branch) for p in pair]
    names = tuple(p.branch for p in pair)
    return tuple(
        _point(
            f"{sweep.name}/{row.name}",
            (option_of(row.weights, k=k, horizon=field.horizon, branches=names),),
            Axis(series="~".join(names), x=float(row.name.rpartition("@")[2])),
        )
        for row in interpolation_rows(anchors[0], anchors[1])
    )


def _point(
    name: str,
    options: tuple[Option, ...],
    at: Axis,
    *,
    strategy: Strategy = Strategy.TRAJECTORY_SOUP,
    select: str = "top-k",
    coefficients: str = "equal",
    free: tuple[str, ...] = ("k",),
) -> Entry:
    return Entry(
        name=name,
        label=f"{at.series} {at.x}",
        strategy=strategy.value,
        options=options,
        free=free,
        select=select,
        coefficients=coefficients,
        at=at,
    )


def _pair(field: Field, sweep: Sweep, default: Sequence[str]) -> tuple[Pool, Pool] | None:
    """The two branches that the study names, or the default ones; None where fewer than two were admitted."""
    names = sweep.branches or tuple(dict.fromkeys(default))
    if missing := [name for name in names if name not in {pool.branch for pool in field.pools}]:
        raise SelectionError(f"sweep {sweep.name!r} names the branch {missing[0]!r}, which the study does not have")
    if len(names) < 2:
        return None
    first, second = (field.chosen([name])[0] for name in names)
    return first, second
