"""The geometry stage: one read of the checkpoints, then directions, angles and a plane (app:geometry)."""

from __future__ import annotations

import math

from trajsoup.core.geometry import alignment, direction, displacements, project
from trajsoup.core.gram import Gram
from trajsoup.core.pool import Pool
from trajsoup.core.selection import Select
from trajsoup.core.soup import Row
from trajsoup.core.trajectory import matched_interval, merged_points
from trajsoup.study.records import BranchDirection, GeometryRecord, ProjectedPoint, RowsRecord
from trajsoup.study.scorer import FORK_POINT, single
from trajsoup.study.workbench import Workbench

WINDOW = 4  # checkpoints per merged point, where the branches have as many


def geometry_stage(bench: Workbench) -> bool:
    """Measure the admitted branches. Without a fork point displacements are from the mean of all checkpoints."""
    records = bench.records
    inputs = {name: records.digest(name) for name in ("train", "screen", "rows")}
    return records.ensure("geometry", inputs, lambda: _measure(bench, inputs))


def _measure(bench: Workbench, inputs: dict[str, str]) -> GeometryRecord:
    from trajsoup.engine.gram import gram

    field = bench.field()
    pools = field.chosen(field.admitted)
    keys = [c.key for pool in pools for c in pool.candidates]
    centre = FORK_POINT if FORK_POINT in bench.checkpoints else None
    used = {key: bench.checkpoints[key] for key in ([centre] if centre else []) + keys}
    measured = gram(used, centre=centre, executor=bench.executor, options=bench.options)
    window = max(min(WINDOW, min(len(pool.candidates) for pool in pools) - 1), 1)
    interval = matched_interval(pools, window=window)
    merged = {
        pool.branch: [p.row for p in merged_points(pool, rule=Select.TAIL_K, window=window, interval=interval)]
        for pool in pools
    }
    directions = [direction(measured, rows, branch=name) for name, rows in merged.items() if len(rows) > 1]
    aligned = alignment(measured, directions)
    lengths = displacements(measured)
    points, shares = _plane(measured, pools, merged, bench.records.require("rows"), centre)
    return GeometryRecord(
        inputs=inputs,
        window=window,
        interval=interval,
        directions=tuple(
            BranchDirection(
                branch=d.branch, variance_share=d.variance_share, net_displacement=d.net_displacement, points=d.points
            )
            for d in directions
        ),
        branches=aligned.branches,
        cosines=tuple(tuple(_finite(v) for v in line) for line in aligned.cosines.tolist()),
        angles=tuple(tuple(_finite(v) for v in line) for line in aligned.angles.tolist()),
        displacements={key: float(lengths[measured.position(key)]) for key in keys},
        plane_variance_share=shares,
        plane=points,
    )


def _plane(
    measured: Gram, pools: tuple[Pool, ...], merged: dict[str, list[Row]], rows: RowsRecord, centre: str | None
) -> tuple[tuple[ProjectedPoint, ...], tuple[float, float]]:
    """Project checkpoints, merged points and the chosen rows into the plane of the merged points."""
    known = set(measured.keys)
    shown: list[tuple[Row, str, str | None, int | None]] = []
    if centre is not None:
        shown.append((single(centre), "fork point", None, 0))
    for pool in pools:
        shown += [(single(c.key), "checkpoint", c.branch, c.tokens) for c in pool.candidates]
        shown += [(row, "anchor", pool.branch, int(row.name.rpartition("@")[2])) for row in merged[pool.branch]]
    shown += [
        (Row(name=row.name, weights=row.weights), "soup", None, row.horizon)
        for row in rows.rows
        if set(row.weights) <= known
    ]
    fit = [row for group in merged.values() for row in group]
    plane = project(measured, [row for row, *_ in shown], fit=fit)
    points = tuple(
        ProjectedPoint(name=row.name, kind=kind, branch=branch, tokens=tokens, x=float(x), y=float(y))
        for (row, kind, branch, tokens), (x, y) in zip(shown, plane.points.tolist(), strict=True)
    )
    return points, plane.variance_share


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
