"""Angles, the plane and direction against gain, from the geometry record and the interpolation sweep."""

from __future__ import annotations

from collections.abc import Iterable

from trajsoup.core.pair_gain import PairGain, relate
from trajsoup.core.pool import RankBy
from trajsoup.core.quantity import format_tokens
from trajsoup.report import contents as c
from trajsoup.study import records as r


def read_geometry(record: r.GeometryRecord | None, interpolation: r.SweepRecord | None) -> c.Geometry | None:
    """What the page draws of weight space; None where no geometry was computed."""
    if record is None:
        return None
    pairs = tuple(_pairs(record, interpolation))
    relation = relate(
        [PairGain(first=p.first, second=p.second, cosine=p.cosine, gains={0: p.gain}, left_out=()) for p in pairs]
    )
    return c.Geometry(
        branches=record.branches,
        cosines=record.cosines,
        tracks=tuple(_tracks(record)),
        variance_share=record.plane_variance_share,
        pairs=pairs,
        gain_unit=RankBy.LOSS,
        slope=relation.slope,
        intercept=relation.intercept,
        pearson=relation.pearson,
        pearson_p=relation.pearson_p,
        missing=relation.missing,
    )


def _tracks(record: r.GeometryRecord) -> Iterable[c.Track]:
    """Branches as paths of checkpoints and of anchors; between anchors of equal tokens lies an interpolation path."""
    for kind, name in (("checkpoint", "branch"), ("anchor", "merged")):
        for branch in record.branches:
            points = sorted(
                (p for p in record.plane if p.kind == kind and p.branch == branch), key=lambda p: p.tokens or 0
            )
            if points:
                yield _track(branch, name, points)
    anchors: dict[int, list[r.ProjectedPoint]] = {}
    for p in record.plane:
        if p.kind == "anchor" and p.tokens is not None:
            anchors.setdefault(p.tokens, []).append(p)
    for tokens in sorted(anchors):
        points = sorted(anchors[tokens], key=lambda p: p.branch or "")
        if len(points) > 1:
            yield _track(f"between anchors at {format_tokens(tokens)}", "path", [*points, points[0]])
    for kind in ("fork point", "soup"):
        points = [p for p in record.plane if p.kind == kind]
        if points:
            yield _track(kind, kind, points)


def _track(name: str, kind: str, points: list[r.ProjectedPoint]) -> c.Track:
    return c.Track(
        name=name,
        kind=kind,
        points=tuple((p.x, p.y) for p in points),
        labels=tuple(p.name if p.tokens is None else f"{p.name} at {format_tokens(p.tokens)} tokens" for p in points),
        names=tuple(p.name for p in points),
    )


def _pairs(record: r.GeometryRecord, interpolation: r.SweepRecord | None) -> Iterable[c.PairPoint]:
    """The gain of a pair is the mean loss of its ends minus the loss halfway, averaged over the horizons swept."""
    position = {name: i for i, name in enumerate(record.branches)}
    found: dict[tuple[str, str], dict[tuple[str, int | None], dict[float, float]]] = {}
    for p in () if interpolation is None else interpolation.points:
        if len(p.branches) == 2 and isinstance(p.x, int | float) and p.validation_loss is not None:
            lines = found.setdefault((p.branches[0], p.branches[1]), {})
            lines.setdefault((p.series, p.horizon), {})[float(p.x)] = p.validation_loss
    for (a, b), lines in found.items():
        gains = [(line[0.0] + line[1.0]) / 2 - line[0.5] for line in lines.values() if {0.0, 0.5, 1.0} <= line.keys()]
        if not gains or a not in position or b not in position:
            continue
        cosine = record.cosines[position[a]][position[b]]
        if cosine is not None:
            yield c.PairPoint(first=a, second=b, cosine=cosine, gain=sum(gains) / len(gains))
