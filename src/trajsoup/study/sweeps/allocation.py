"""Allocation between two branches (fig:traj-soup-asym-allocation)."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.methods.freedom import Stop
from trajsoup.core.pool import ranked
from trajsoup.study.choosing.entries import Axis, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP, middle_against_ends, point, two_branches
from trajsoup.study.sweeps.table import Sweep, sweep

SIZE = 16  # the paper's


@sweep(
    name="allocation",
    title="Allocation between two branches",
    paper="fig:traj-soup-asym-allocation",
    axis="checkpoints of each",
    settings=("branches", "merge_size"),
    pairs=middle_against_ends,
    curve=True,
)
def allocation(field: Field, asked: Sweep) -> Sequence[Entry]:
    """k1 : k2 with k1 + k2 fixed; every checkpoint weighs the same."""
    third = field.admitted[min(2, len(field.admitted) - 1) :][:1]  # the paper pairs EXP1 with EXP3
    pair = two_branches(field, asked, (*field.admitted[:1], *third))
    if pair is None:
        return ()
    first, second = (pool.branch for pool in pair)
    room = [ranked(pool.until(field.horizon).candidates, rank_by=field.rank_by) for pool in pair]
    size = asked.merge_size or max(min(SIZE, *map(len, room)) // 2 * 2, 2)
    step = 2 if size >= 8 else 1
    stop = Stop(branches=(first, second), horizon=field.horizon)
    freedom = field.freedom(SOUP, [stop])
    entries: list[Entry] = []
    for k1 in range(step, size, step):
        k2 = size - k1
        if k1 <= len(room[0]) and k2 <= len(room[1]):
            weights = {c.key: 1 / size for best, k in zip(room, (k1, k2), strict=True) for c in best[:k]}
            at = Axis(series=f"{first}:{second}", x=f"{k1}:{k2}")
            entries.append(point(asked, f"{k1}:{k2}", freedom.option(weights, stop=stop), at))
    return entries
