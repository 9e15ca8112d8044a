"""Angles, the plane and direction against gain, from the geometry record and the interpolation sweep."""

from __future__ import annotations

from collections.abc import Iterable

from trajsoup.core.pair_gain import PairGain, relate
from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report import contents as c
from trajsoup.study.records import results as r

BAND_POINTS = 21  # of the drawn band


def read_geometry(
    record: r.GeometryRecord | None, *, interpolation: r.SweepRecord | None, scaling: r.SweepRecord | None
) -> c.Geometry | None:
    """What the page draws of weight space; None where no geometry was computed."""
    if record is None:
        return None
    pairs = _pairs(record, scaling) or _pairs(record, interpolation)
    relation = relate(pairs)
    cosines = [p.cosine for p in pairs]
    band: tuple[tuple[float, float, float, float], ...] = ()
    if relation.slope is not None:
        low, high = min(cosines), max(cosines)
        xs = [low + (high - low) * i / (BAND_POINTS - 1) for i in range(BAND_POINTS)]
        band = tuple(zip(xs, *relation.line(xs).tolist(), strict=True))
    return c.Geometry(
        branches=record.branches,
        cosines=record.cosines,
        tracks=tuple(_tracks(record)),
        variance_share=record.plane_variance_share,
        pairs=tuple(c.PairPoint(first=p.first, second=p.second, cosine=p.cosine, gain=p.gain) for p in pairs),
        gain_unit=Signal.LOSS,
        band=band,
        pearson=relation.pearson,
        pearson_p=relation.pearson_p,
        spearman=relation.spearman,
        missing=relation.missing,
        profiles=tuple(_profiles(interpolation)),
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


def _pairs(record: r.GeometryRecord, sweep: r.SweepRecord | None) -> list[PairGain]:
    """The gain of each pair of branches: the mean loss of its two anchors minus that of their merge, one half each.

    The (N, K) grid holds both for every pair, an interpolation for the pairs it was asked for; gains are averaged over
    every K and horizon at which all three were scored.
    """
    ends: dict[tuple[str, object], float] = {}
    merged: dict[tuple[str, str], dict[object, float]] = {}
    for p in () if sweep is None else sweep.points:
        if p.validation_loss is None:
            continue
        at = (p.k, p.horizon)
        if len(p.branches) == 1:
            ends[p.branches[0], at] = p.validation_loss
        elif len(p.branches) == 2 and sweep is not None:
            first, second = p.branches
            share = float(p.x) if sweep.kind == "interpolation" else 0.5
            if share in (0.0, 1.0):
                ends[first if share == 0.0 else second, at] = p.validation_loss
            elif share == 0.5:
                merged.setdefault((first, second), {})[at] = p.validation_loss
    position = {name: i for i, name in enumerate(record.branches)}
    found: list[PairGain] = []
    for (a, b), losses in merged.items():
        if a not in position or b not in position:
            continue
        cosine = record.cosines[position[a]][position[b]]
        gains = {
            i: (ends[a, at] + ends[b, at]) / 2 - loss
            for i, (at, loss) in enumerate(losses.items())
            if (a, at) in ends and (b, at) in ends
        }
        if cosine is not None and gains:
            found.append(PairGain(first=a, second=b, cosine=cosine, gains=gains, left_out=()))
    return found


def _profiles(interpolation: r.SweepRecord | None) -> Iterable[c.Profile]:
    lines: dict[tuple[str, int | None], list[r.SweepPoint]] = {}
    for p in () if interpolation is None else interpolation.points:
        if len(p.branches) == 2 and isinstance(p.x, int | float) and p.validation_loss is not None:
            lines.setdefault((p.series, p.horizon), []).append(p)
    for points in lines.values():
        drawn = sorted((float(p.x), p.validation_loss or 0.0, p.row) for p in points)
        yield c.Profile(first=points[0].branches[0], second=points[0].branches[1], points=tuple(drawn))
