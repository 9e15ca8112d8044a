"""The geometry stage: one read of the checkpoints, then directions, angles and a plane (app:geometry).

    gram.json (kept_gram.py) -> merged points -> directions, angles, plane
    validation scores of anchors and pairs -> gains, their relation to the angles (pair_gains.py)

What cannot be computed (a branch that does not move, branches without common tokens) is left out and named in `notes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trajsoup.core.completion import GeometryFields
from trajsoup.core.geometry import alignment, directions_of, displacements, project, random_walk_share
from trajsoup.core.gram import Gram
from trajsoup.core.pool import Pool
from trajsoup.core.soup import Row
from trajsoup.core.trajectory import AVERAGING_RULE, MergedPoint, merged_trajectories
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.frontier import FrontierRecord
from trajsoup.study.records.geometry import BranchDirection, GeometryRecord, ProjectedPoint
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.score.scorer import FORK_POINT, single
from trajsoup.study.stages.compute_axis import compute_fields
from trajsoup.study.stages.pair_gains import interpolation_sweep, measured_gains, measured_paths, relation_line
from trajsoup.study.workbench import Workbench


def geometry_stage(bench: Workbench) -> bool:
    """Measure the admitted branches. Without a fork point displacements are from the mean of all checkpoints."""
    records = bench.records
    axis = (FrontierRecord,) if records.path(FrontierRecord).is_file() else ()
    inputs = records.digests(TrainRecord, ScreenRecord, RowsRecord, *axis)
    asked = interpolation_sweep(bench)
    if asked is not None:
        inputs["interpolation"] = digest_of(asked.branches)
    return records.ensure(GeometryRecord, inputs, lambda: _measure(bench, inputs))


def _measure(bench: Workbench, inputs: dict[str, str]) -> GeometryRecord:
    field = bench.field()
    pools = field.chosen(field.admitted)
    keys = [c.key for pool in pools for run in pool.runs for c in run.candidates]
    centre = FORK_POINT if FORK_POINT in bench.checkpoints else None
    measured = bench.gram(([centre] if centre else []) + keys, centre=centre)
    window, interval, merged, notes = merged_trajectories(pools)
    directions, still = directions_of(measured, merged)
    aligned = alignment(measured, directions) if directions else None
    cosines = (
        {}
        if aligned is None
        else {
            a: dict(zip(aligned.branches, line, strict=True))
            for a, line in zip(aligned.branches, aligned.cosines.tolist(), strict=True)
        }
    )
    lengths = displacements(measured)
    points, shares = _plane(measured, pools, merged, bench.records.require(RowsRecord), centre)
    gains = measured_gains(bench, field, cosines)
    paths, grid = measured_paths(bench, field)
    return GeometryRecord(
        inputs=inputs,
        window=window,
        interval=interval,
        directions=tuple(
            BranchDirection(
                branch=d.branch,
                variance_share=d.variance_share,
                random_walk_share=random_walk_share(d.points, window=window),
                net_displacement=d.net_displacement,
                points=d.points,
            )
            for d in directions
        ),
        branches=() if aligned is None else aligned.branches,
        cosines=() if aligned is None else _matrix(aligned.cosines.tolist()),
        angles=() if aligned is None else _matrix(aligned.angles.tolist()),
        displacements={key: float(lengths[measured.position(key)]) for key in keys},
        plane_variance_share=shares,
        plane=points,
        completion=GeometryFields(
            averaging_rule=AVERAGING_RULE,
            averaging_window=window,
            interval=interval,
            points={d.branch: d.points for d in directions},
            variance_share={d.branch: d.variance_share for d in directions},
            interpolation_grid=grid,
            interpolation_horizons=tuple(sorted({path.tokens for path in paths})),
            gain_offsets=tuple(sorted({int(tokens) for pair in gains.pairs for tokens in pair.gains})),
            interpolation_k=next((path.k for path in paths), None),
            gain_k=gains.k,
        ),
        compute=compute_fields(bench.records),
        pairs=gains.pairs,
        relation=gains.loss,
        relation_line=relation_line(gains.loss, gains.pairs),
        accuracy_relation=gains.accuracy,
        accuracy_line=relation_line(gains.accuracy, gains.pairs),
        paths=paths,
        notes=(*notes, *still),
    )


def _plane(
    measured: Gram,
    pools: tuple[Pool, ...],
    merged: Mapping[str, Sequence[MergedPoint]],
    rows: RowsRecord,
    centre: str | None,
) -> tuple[tuple[ProjectedPoint, ...], tuple[float, float]]:
    """Project checkpoints, merged points and the chosen rows into the plane of the merged points."""
    known = set(measured.keys)
    shown: list[tuple[Row, str, str | None, int | None]] = []
    if centre is not None:
        shown.append((single(centre), "fork point", None, 0))
    for pool in pools:
        shown += [(single(c.key), "checkpoint", c.branch, c.tokens) for c in pool.candidates]
        shown += [(point.row, "anchor", pool.branch, point.tokens) for point in merged.get(pool.branch, ())]
    shown += [
        (Row(name=row.name, weights=row.weights), "soup", None, row.horizon)
        for row in rows.rows
        if set(row.weights) <= known
        and not row.groups  # one that differs by group of tensors lies in no plane of these
    ]
    fit = [point.row for group in merged.values() for point in group]
    plane = project(measured, [row for row, *_ in shown], fit=fit or None)
    points = tuple(
        ProjectedPoint(name=row.name, kind=kind, branch=branch, tokens=tokens, x=float(x), y=float(y))
        for (row, kind, branch, tokens), (x, y) in zip(shown, plane.points.tolist(), strict=True)
    )
    return points, plane.variance_share


def _matrix(lines: Sequence[Sequence[float]]) -> tuple[tuple[float | None, ...], ...]:
    return tuple(tuple(value if math.isfinite(value) else None for value in line) for line in lines)
