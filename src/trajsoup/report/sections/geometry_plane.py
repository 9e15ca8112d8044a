"""Where the branches went: a plane of their two leading components, and the distance from the fork point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajsoup.core.quantity import format_tokens
from trajsoup.report import style
from trajsoup.report.section import Drawn
from trajsoup.study.records.geometry import GeometryRecord, ProjectedPoint

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOOKS = {  # mode, dash, width, size, symbol
    "checkpoint": ("lines+markers", "dot", 1.2, 5, "circle"),
    "anchor": ("lines+markers", "solid", 2.4, 9, "diamond"),
    "path": ("lines", "dot", 1, 1, "circle"),
    "soup": ("markers", "solid", 0, 16, "star"),
    "fork point": ("markers", "solid", 0, 13, "square"),
}


def plane_figures(record: GeometryRecord) -> list[Drawn]:
    """Both, as far as they were measured."""
    plane = Drawn(name="plane", title="Trajectories in a plane", says=_plane_words(record), draw=lambda: _plane(record))
    away = Drawn(
        name="displacement",
        title="Distance from the fork point",
        says=_displacement_words(record),
        draw=lambda: _displacement(record),
    )
    return [plane] * bool(record.plane) + [away] * bool(record.displacements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Points of the plane that belong together: a branch's checkpoints or anchors, the soups, anchors of equal tokens."""

    name: str
    kind: str
    points: Sequence[ProjectedPoint]


def _plane(record: GeometryRecord) -> Figure:
    """Checkpoints, merged points and the lines between anchors in the plane of their two leading components."""
    first, second = record.plane_variance_share
    figure = style.figure(x=f"component 1 ({first:.0%} of variance)", y=f"component 2 ({second:.0%})", height=460)
    colours = style.colours_of(record.branches)
    drawn: set[str] = set()
    for track in _tracks(record):
        mode, dash, width, size, symbol = LOOKS[track.kind]
        colour = colours.get(track.name, style.SOUP if track.kind == "soup" else style.QUIET)
        at = [p.name if p.tokens is None else f"{p.name} at {format_tokens(p.tokens)} tokens" for p in track.points]
        figure.add_scatter(
            x=[p.x for p in track.points],
            y=[p.y for p in track.points],
            mode=mode,
            name=style.plain(track.name) + (" merged" if track.kind == "anchor" else ""),
            line={"color": colour, "width": width, "dash": dash},
            marker={"size": size, "symbol": symbol, "color": colour},
            opacity=0.55 if track.kind in ("checkpoint", "path") else 1,
            legendgroup=track.name,
            showlegend=track.kind != "path" and track.name not in drawn,
            **style.marks([p.name for p in track.points], [style.plain(words) for words in at]),
        )
        drawn.add(track.name)
    figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


def _tracks(record: GeometryRecord) -> Iterable[Track]:
    for kind in ("checkpoint", "anchor"):
        for branch in record.branches:
            points = sorted(
                (p for p in record.plane if p.kind == kind and p.branch == branch), key=lambda p: p.tokens or 0
            )
            if points:
                yield Track(name=branch, kind=kind, points=points)
    anchors = sorted((p for p in record.plane if p.kind == "anchor"), key=lambda p: (p.tokens or 0, p.branch or ""))
    for at in dict.fromkeys(p.tokens for p in anchors if p.tokens is not None):
        points = [p for p in anchors if p.tokens == at]
        if len(points) > 1:
            yield Track(name=f"between anchors at {format_tokens(at)}", kind="path", points=[*points, points[0]])
    for kind in ("fork point", "soup"):
        points = [p for p in record.plane if p.kind == kind]
        if points:
            yield Track(name=kind, kind=kind, points=points)


def _plane_words(record: GeometryRecord) -> str:
    """How much of the movement the plane shows."""
    first, second = record.plane_variance_share
    return (
        f"The plane holds {first + second:.0%} of the merged points' variance ({first:.0%} and {second:.0%}); distances "
        "across it are hidden. Dotted grey lines join anchors of equal tokens: along them lie their interpolations."
    )


def _displacement(record: GeometryRecord) -> Figure:
    """How far each checkpoint lies from where all branches began."""
    points = sorted(
        (p for p in record.plane if p.kind == "checkpoint" and p.name in record.displacements),
        key=lambda p: p.tokens or 0,
    )
    size, title = style.token_axis(max((p.tokens or 0 for p in points), default=1))
    figure = style.figure(x=title, y="distance in weight space", height=360)
    colours = style.colours_of(record.branches)
    for branch in dict.fromkeys(p.branch for p in points if p.branch is not None):
        mine = [p for p in points if p.branch == branch]
        figure.add_scatter(
            x=[(p.tokens or 0) / size for p in mine],
            y=[record.displacements[p.name] for p in mine],
            mode="lines+markers",
            name=style.plain(branch),
            line={"color": colours.get(branch, style.QUIET), "width": 2},
            marker={"size": 4},
            **style.marks(
                [p.name for p in mine],
                [f"<b>{style.plain(p.name)}</b><br>{record.displacements[p.name]:.4g} away" for p in mine],
            ),
        )
    return figure


def _displacement_words(record: GeometryRecord) -> str:
    if not record.displacements:
        return "No distance was measured."
    far = max(record.displacements, key=lambda key: record.displacements[key])
    centre = "the fork point" if any(p.kind == "fork point" for p in record.plane) else "the mean of all checkpoints"
    return (
        f"Straight-line distance of every checkpoint from {centre}. Farthest: {far}, {record.displacements[far]:.4g}."
    )
