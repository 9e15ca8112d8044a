"""Interpolation of two anchors (eq:interpolation)."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.interpolation import GRID, interpolation_rows
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.soup import soup_row
from trajsoup.study.choosing.entries import Axis, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP, middle_against_ends, point, two_branches
from trajsoup.study.sweeps.table import Sweep, sweep


@sweep(
    name="interpolation",
    title="Interpolation of two anchors",
    paper="eq:interpolation",
    axis="lambda",
    settings=("branches",),
    pairs=middle_against_ends,
    own_section=True,
)
def interpolation(field: Field, asked: Sweep) -> Sequence[Entry]:
    """From the anchor of one branch to that of another, at the K in the middle of the grid."""
    pair = two_branches(field, asked, field.admitted[:2])
    if pair is None:
        return ()
    names = tuple(pool.branch for pool in pair)
    stop = Stop(branches=names, horizon=field.horizon)
    freedom = field.freedom(SOUP, [stop])
    usable = [option.k for option in freedom.options("top-k")]
    if not usable:
        return ()
    k = usable[len(usable) // 2]
    first, second = (soup_row([p], k=k, horizon=field.horizon, rank_by=field.rank_by, name=p.branch) for p in pair)
    return [
        point(asked, row.name, freedom.option(row.weights, stop=stop, k=k), Axis(series="~".join(names), x=x))
        for x, row in zip(GRID, interpolation_rows(first, second), strict=True)
    ]
