"""The joint region of several anchors (sec:discussion): the triangle between three, and random points between all.

    anchors of the admitted branches -> rows of W -> losses on validation, all from one read -> a picture, and in words

Two connected anchors say nothing of a third. What is measured is Frankle's instability, of more than a pair: the highest
loss inside minus the mean of the corners.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from trajsoup.core.interpolation import STABLE, mixed_row
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.soup import soup_row
from trajsoup.study.choosing.entries import Axis, Chosen, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP, point
from trajsoup.study.sweeps.table import Sweep, sweep

SIDE = 8  # steps along a side of the triangle: 45 points
RANDOM = 32  # points of the whole simplex, uniform on it
SEED = 0
TRIANGLE, SIMPLEX = "triangle", "simplex"


def _says(chosen: Sequence[Chosen]) -> tuple[str, ...]:
    return tuple(words for series in (TRIANGLE, SIMPLEX) if (words := _seen(chosen, series)))


def _seen(chosen: Sequence[Chosen], series: str) -> str:
    """How high the inside lies above the corners, and where it is lowest."""
    losses = {c.entry.key: _loss(c) for c in chosen}
    inside = [c for c in chosen if c.entry.at is not None and c.entry.at.series == series]
    corners = [c for c in chosen if len(_shares(c)) == 1]
    if series == TRIANGLE:
        corners = [c for c in corners if c in inside]
    if not inside or not all(math.isfinite(losses[c.entry.key]) for c in (*inside, *corners)):
        return ""
    ends = [losses[c.entry.key] for c in corners]
    mean, best = sum(ends) / len(ends), min(ends)
    highest = max(losses[c.entry.key] for c in inside)
    lowest = min(inside, key=lambda c: losses[c.entry.key])
    below = sum(losses[c.entry.key] < best for c in inside)
    where = ", ".join(f"{share:.0%} {name}" for name, share in _shares(lowest).items())
    names = "+".join(next(iter(_shares(c))) for c in corners)
    verdict = "connected" if highest - mean < STABLE * mean else "not connected"
    return (
        f"{names}, {len(inside)} points of their {series}: jointly {verdict}, the highest loss is {highest - mean:+.4f} nats "
        f"from the mean of the corners ({(highest - mean) / mean:+.2%}; stable below {STABLE:.0%}); {below} lie below the "
        f"best corner, the lowest at {where} ({losses[lowest.entry.key]:.4f}, best corner {best:.4f})."
    )


@sweep(
    name="region",
    title="The region between anchors",
    paper="sec:discussion",
    axis="share of each branch",
    says=_says,
    cell=lambda c: None if c.entry.at is None else c.entry.at.series,
    default=False,
    own_section=True,
)
def region(field: Field, asked: Sweep) -> Sequence[Entry]:
    """Three anchors and a grid over their triangle, then random points between the anchors of all admitted branches."""
    names = field.admitted
    if len(names) < 3:
        return ()
    stop = Stop(branches=names, horizon=field.horizon)
    freedom = field.freedom(SOUP, [stop])
    usable = [option.k for option in freedom.options("top-k")]
    if not usable:
        return ()
    k = usable[len(usable) // 2]
    anchors = {
        pool.branch: soup_row([pool], k=k, horizon=field.horizon, rank_by=field.rank_by, name=pool.branch)
        for pool in field.chosen(names)
    }
    placed = [(TRIANGLE, at) for at in triangle(names[:3])]
    placed += [(SIMPLEX, {name: 1.0}) for name in names[3:]]  # its other corners
    random = np.random.default_rng(SEED).dirichlet([1.0] * len(names), RANDOM).tolist()
    placed += [(SIMPLEX, dict(zip(names, at, strict=True))) for at in random]
    entries: list[Entry] = []
    for number, (series, shares) in enumerate(placed):
        row = mixed_row([(anchors[name], share) for name, share in shares.items()], name=f"{series}/{number}")
        at = Axis(series=series, x=float(number), shares=shares)
        entries.append(point(asked, row.name, freedom.option(row.weights, stop=stop, k=k), at))
    return entries


def triangle(names: Sequence[str], *, side: int = SIDE) -> list[dict[str, float]]:
    """The points of a triangular grid by the shares of its corners; a share of nothing is left out."""
    steps = [(i, j, side - i - j) for i in range(side, -1, -1) for j in range(side - i, -1, -1)]
    return [{name: n / side for name, n in zip(names, at, strict=True) if n} for at in steps]


def _shares(chosen: Chosen) -> Mapping[str, float]:
    return (chosen.entry.at.shares if chosen.entry.at else None) or {}


def _loss(chosen: Chosen) -> float:
    return math.nan if chosen.validation.losses is None else chosen.validation.losses.loss()
