"""Scaling in the paper's order: EXP1, EXP1 + EXP2, ... over the merge size (fig:traj-soup-trajectory-scaling)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trajsoup.core.methods.freedom import Stop
from trajsoup.study.choosing.entries import Axis, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP, point
from trajsoup.study.sweeps.table import Sweep, sweep

PEAK = range(10, 17)  # merge sizes within which the paper's curves peak


@sweep(
    name="prescribed-scaling",
    title="N branches in their order, over the merge size",
    paper="fig:traj-soup-trajectory-scaling",
    axis="merge size N K",
    cell=lambda chosen: len(chosen.option.branches),
    own_section=True,
)
def prescribed_scaling(field: Field, asked: Sweep) -> Sequence[Entry]:
    """EXP1 to EXPN at the study's K and at every K that merges 10 to 16; on test, the K that validates best for each N."""
    entries: list[Entry] = []
    for n in range(1, len(field.admitted) + 1):
        stop = Stop(branches=field.admitted[:n], horizon=field.horizon)
        within = replace(field, ks=tuple(sorted({*field.ks, *(size // n for size in PEAK if size % n == 0)})))
        entries += [
            point(
                asked,
                f"{'+'.join(stop.branches)}/K={option.k}",
                option,
                Axis(series=f"N={n}", x=float(len(option.weights))),
            )
            for option in within.freedom(SOUP, [stop]).options("top-k")
        ]
    return entries
