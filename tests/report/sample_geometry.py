"""The geometry of a sample study, from the points of its bowl."""

from __future__ import annotations

import math

import numpy as np

from tests.report.bowl import Bowl
from trajsoup.study.records.geometry import BranchDirection, GeometryRecord, ProjectedPoint
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.stages.pair_gains import measured_gains, measured_paths, relation_line
from trajsoup.study.workbench import Workbench


def geometry_record(bowl: Bowl, bench: Workbench) -> GeometryRecord:
    """Directions, cosines and the plane of the admitted branches and the soups; gains as the study's stage takes them."""
    records = bench.records
    ok = [v.branch for v in records.require(ScreenRecord).verdicts if v.admitted]
    last = {b: np.mean([bowl.x[k] for k in bowl.keys[b][-4:]], axis=0) - bowl.fork for b in ok}
    unit = {b: v / np.linalg.norm(v) for b, v in last.items()}
    cosines = tuple(tuple(float(unit[a] @ unit[b]) for b in ok) for a in ok)
    keys = [k for b in ok for k in bowl.keys[b]]
    x = np.array([bowl.x[k] for k in keys])
    _, s, vt = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    share = s**2 / np.sum(s**2)
    flat = (x - x.mean(axis=0)) @ vt[:2].T
    points = [
        ProjectedPoint(
            name=k,
            kind="checkpoint",
            branch=bowl.branch_of(k),
            tokens=bowl.tokens[k],
            x=float(p[0]),
            y=float(p[1]),
        )
        for k, p in zip(keys, flat, strict=True)
    ]
    window = min(4, bowl.shape.checkpoints)
    for b in ok:
        own = bowl.keys[b]
        for i in range(window, len(own) + 1, max(len(own) // 6, 1)):
            p = (np.mean([bowl.x[k] for k in own[i - window : i]], axis=0) - x.mean(axis=0)) @ vt[:2].T
            points.append(
                ProjectedPoint(
                    name=f"anchor/{b}/{i}",
                    kind="anchor",
                    branch=b,
                    tokens=bowl.tokens[own[i - 1]],
                    x=float(p[0]),
                    y=float(p[1]),
                )
            )
    for row in records.require(RowsRecord).rows:
        if row.name.startswith("trajectory-soup"):
            p = (sum(w * bowl.x[k] for k, w in row.weights.items()) - x.mean(axis=0)) @ vt[:2].T
            points.append(
                ProjectedPoint(
                    name=row.name, kind="soup", branch=None, tokens=row.horizon, x=float(p[0]), y=float(p[1])
                )
            )
    f = (bowl.fork - x.mean(axis=0)) @ vt[:2].T
    points.append(
        ProjectedPoint(name="fork point", kind="fork point", branch=None, tokens=0, x=float(f[0]), y=float(f[1]))
    )
    by_name = {a: dict(zip(ok, line, strict=True)) for a, line in zip(ok, cosines, strict=True)}
    gains = measured_gains(bench, bench.field(), by_name)
    paths, _ = measured_paths(bench, bench.field())
    return GeometryRecord(
        inputs={},
        window=4,
        interval=(0, bowl.shape.horizon),
        directions=tuple(
            BranchDirection(branch=b, variance_share=0.7, random_walk_share=0.65, net_displacement=0.5, points=20)
            for b in ok
        ),
        branches=tuple(ok),
        cosines=cosines,
        angles=tuple(tuple(math.degrees(math.acos(max(-1, min(1, c)))) for c in row) for row in cosines),
        displacements={k: float(np.linalg.norm(bowl.x[k] - bowl.fork)) for k in keys},
        pairs=gains.pairs,
        relation=gains.loss,
        relation_line=relation_line(gains.loss, gains.pairs),
        accuracy_relation=gains.accuracy,
        accuracy_line=relation_line(gains.accuracy, gains.pairs),
        paths=paths,
        plane_variance_share=(float(share[0]), float(share[1])),
        plane=tuple(points),
    )
