"""Angles between branches, their paths in a plane, and what weak alignment is worth.

fig:direction-heatmap, fig:interpolation and fig:direction-gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajsoup.report.contents import Geometry
from trajsoup.report.figures.style import (
    COLOURS,
    DIVERGING,
    QUIET,
    SOUP,
    colours_of,
    difference_text,
    faded,
    layout,
    plain,
    score_text,
    shown,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def cosines(geometry: Geometry) -> Figure:
    """The cosine of each pair of branch directions."""
    import plotly.graph_objects as go

    names = [plain(b) for b in geometry.branches]
    figure = go.Figure(layout=layout(x="", y="", height=130 + 52 * max(len(names), 3)))
    figure.add_trace(
        go.Heatmap(
            x=names,
            y=names,
            z=geometry.cosines,
            zmin=-1,
            zmax=1,
            colorscale=DIVERGING,
            text=[["" if v is None else f"{v:.3f}" for v in row] for row in geometry.cosines],
            texttemplate="%{text}",
            hovertemplate="%{y} and %{x}<br>cosine <b>%{z:.4f}</b><extra></extra>",
            colorbar={"title": {"text": "cosine", "side": "right", "font": {"size": 12}}, "thickness": 12},
            xgap=2,
            ygap=2,
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(type="category", showgrid=False)
    return figure


def plane(geometry: Geometry) -> Figure:
    """Checkpoints, merged points and interpolation paths in the plane of their two leading components."""
    import plotly.graph_objects as go

    shares = geometry.variance_share
    first, second = ("", "") if shares is None else (f" ({shares[0]:.0%} of variance)", f" ({shares[1]:.0%})")
    figure = go.Figure(layout=layout(x=f"component 1{first}", y=f"component 2{second}", height=460))
    branches = [t.name for t in geometry.tracks if t.kind == "branch"]
    colours = colours_of(branches)
    looks = {
        "branch": {"mode": "lines+markers", "dash": "dot", "width": 1.2, "size": 5, "symbol": "circle"},
        "merged": {"mode": "lines+markers", "dash": "solid", "width": 2.4, "size": 9, "symbol": "diamond"},
        "path": {"mode": "lines", "dash": "dot", "width": 1, "size": 1, "symbol": "circle"},
        "soup": {"mode": "markers", "dash": "solid", "width": 0, "size": 16, "symbol": "star"},
        "fork point": {"mode": "markers", "dash": "solid", "width": 0, "size": 13, "symbol": "square"},
    }
    for track in geometry.tracks:
        look = looks[track.kind]
        colour = colours.get(track.name, SOUP if track.kind == "soup" else QUIET)
        figure.add_trace(
            go.Scatter(
                x=[p[0] for p in track.points],
                y=[p[1] for p in track.points],
                mode=look["mode"],
                name=plain(track.name) + (" merged" if track.kind == "merged" else ""),
                line={"color": colour, "width": look["width"], "dash": look["dash"]},
                marker={"size": look["size"], "symbol": look["symbol"], "color": colour},
                opacity=0.55 if track.kind in ("branch", "path") else 1,
                legendgroup=track.name,
                showlegend=track.kind != "path" and not (track.kind == "merged" and track.name in branches),
                customdata=[
                    [name, plain(label)] for name, label in zip(track.names or track.labels, track.labels, strict=True)
                ],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


def direction_gain(geometry: Geometry) -> Figure:
    """The gain of interpolating two branches over the cosine of their directions, with the fitted line and its band."""
    import plotly.graph_objects as go

    unit = geometry.gain_unit
    label = "gain (nats per token)" if unit.value == "loss" else "gain (points)"
    figure = go.Figure(layout=layout(x="cosine of the two directions", y=label, height=380, showlegend=False))
    xs = [p.cosine for p in geometry.pairs]
    if geometry.band:
        cosine = [b[0] for b in geometry.band]
        figure.add_trace(
            go.Scatter(
                x=[*cosine, *reversed(cosine)],
                y=[shown(v, unit) for v in (*(b[3] for b in geometry.band), *(b[2] for b in reversed(geometry.band)))],
                fill="toself",
                fillcolor=faded(SOUP, 0.14),
                line={"width": 0},
                hoverinfo="skip",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=cosine,
                y=[shown(b[1], unit) for b in geometry.band],
                mode="lines",
                line={"color": SOUP, "width": 2},
                hoverinfo="skip",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=[shown(p.gain, unit) for p in geometry.pairs],
            mode="markers",
            marker={"size": 11, "color": COLOURS[0]},
            text=[
                f"<b>{plain(p.first)} and {plain(p.second)}</b><br>cosine {p.cosine:.4f}<br>gain "
                f"{difference_text(p.gain, unit)}"
                for p in geometry.pairs
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    return figure


def interpolation(geometry: Geometry) -> Figure:
    """The loss along straight lines between anchors; the dotted line joins the ends (eq:interpolation)."""
    import plotly.graph_objects as go

    figure = go.Figure(layout=layout(x="share of the second branch", y="loss (nats per token)", height=380))
    colours = colours_of([f"{p.first}~{p.second}" for p in geometry.profiles])
    for profile in geometry.profiles:
        name = f"{plain(profile.first)} to {plain(profile.second)}"
        colour = colours[f"{profile.first}~{profile.second}"]
        ends = (profile.points[0], profile.points[-1])
        figure.add_trace(
            go.Scatter(
                x=[e[0] for e in ends],
                y=[e[1] for e in ends],
                mode="lines",
                line={"color": QUIET, "dash": "dot", "width": 1.4},
                legendgroup=name,
                showlegend=False,
                hoverinfo="skip",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[p[0] for p in profile.points],
                y=[p[1] for p in profile.points],
                mode="lines+markers",
                name=name,
                legendgroup=name,
                line={"color": colour, "width": 2.2},
                marker={"size": 7},
                customdata=[
                    [
                        soup,
                        f"<b>{name}</b><br>{x:.0%}: {geometry.split} loss <b>{score_text(y, geometry.gain_unit)}</b>",
                    ]
                    for x, y, soup in profile.points
                ],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    figure.update_xaxes(tickformat=".0%")
    return figure
