"""The (N, K) grid over branch subsets (fig:traj-soup-trajectory-scaling)."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.methods.freedom import Stop
from trajsoup.study.choosing.entries import Axis, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP, point
from trajsoup.study.sweeps.table import Sweep, sweep


@sweep(
    name="scaling",
    title="The (N, K) grid over branch subsets",
    paper="fig:traj-soup-trajectory-scaling",
    axis="merge size N K",
    cell=lambda chosen: (len(chosen.option.branches), chosen.option.k),
    own_section=True,
)
def scaling(field: Field, asked: Sweep) -> Sequence[Entry]:
    """Every subset of branches at every K, over the merge size; on test, the subset that validation prefers in each cell."""
    return [
        point(
            asked,
            f"{'+'.join(subset)}/K={option.k}",
            option,
            Axis(series=f"N={len(subset)}", x=float(len(option.weights))),
        )
        for subset in field.subsets()
        for option in field.freedom(SOUP, [Stop(branches=subset, horizon=field.horizon)]).options("top-k")
    ]
