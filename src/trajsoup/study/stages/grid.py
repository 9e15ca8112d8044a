"""The (N, K) grid: cells of one seed, and what further branches change over seeds (fig:traj-soup-trajectory-scaling).

points of the sweep -> mean over subsets of branches -> cells        cells of every seed -> N branches minus one, same K
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trajsoup.study.records.sweeps import GridCell, SweepPoint


def grid_cells(points: Sequence[SweepPoint]) -> tuple[GridCell, ...]:
    """The (N, K) cells on validation, each named by its best subset; ties go to fewer branches, then to fewer checkpoints."""
    groups: dict[tuple[int, int], dict[str, float]] = {}
    for p in points:
        if p.k is not None and p.validation_loss is not None:
            groups.setdefault((p.n_branches, p.k), {})[p.row] = p.validation_loss
    means = {cell: math.fsum(losses.values()) / len(losses) for cell, losses in sorted(groups.items())}
    best = {n: min((cell for cell in means if cell[0] == n), key=lambda cell: means[cell]) for n, _ in means}
    return tuple(
        GridCell(
            n_branches=n,
            k=k,
            loss=loss,
            subsets=len(groups[n, k]),
            row=min(groups[n, k], key=lambda row: groups[n, k][row]),
            best=(n, k) == min(means, key=lambda cell: means[cell]),
            best_of_n=(n, k) == best[n],
        )
        for (n, k), loss in means.items()
    )


def grid_gains(seeds: Mapping[int, Sequence[GridCell]]) -> dict[tuple[int, int], dict[int, float | None]]:
    """(N, K) -> seed -> the loss of N branches minus that of the fewest, at the same K."""
    losses = {seed: {(c.n_branches, c.k): c.loss for c in cells} for seed, cells in seeds.items()}
    every = sorted({cell for found in losses.values() for cell in found})
    least = min((n for n, _ in every), default=1)
    return {
        (n, k): {
            seed: found[n, k] - found[least, k] for seed, found in losses.items() if {(n, k), (least, k)} <= set(found)
        }
        for n, k in every
        if n > least
    }
