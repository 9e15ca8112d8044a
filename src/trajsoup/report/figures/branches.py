"""How the branches trained: loss over tokens, and the screen's J against its tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trajsoup.report.contents import Branch
from trajsoup.report.figures.style import QUIET, colours_of, faded, layout, plain, token_axis

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_POINTS = 600  # drawn of one curve: a page is about 1,000 pixels wide
SMOOTHED = 25  # a running mean spans this fraction of a curve: one twenty-fifth


def training(branches: Sequence[Branch]) -> Figure:
    """Training loss of every branch as a running mean, the logged loss faintly behind; a failed one ends in a cross."""
    import plotly.graph_objects as go

    size, title = token_axis(max((t for b in branches for t, _ in b.losses), default=1))
    figure = go.Figure(layout=layout(x=title, y="training loss (nats per token)"))
    colours = colours_of([b.name for b in branches])
    for branch in branches:
        points = thinned(branch.losses)
        if not points:
            continue
        figure.add_trace(
            go.Scatter(
                x=[t / size for t, _ in points],
                y=[loss for _, loss in points],
                mode="lines",
                line={"color": faded(colours[branch.name], 0.22), "width": 1},
                legendgroup=branch.name,
                showlegend=False,
                hoverinfo="skip",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[t / size for t, _ in points],
                y=running_mean([loss for _, loss in points]),
                mode="lines",
                name=plain(branch.name),
                legendgroup=branch.name,
                line={"color": colours[branch.name], "width": 2.2},
                customdata=[[None, loss] for _, loss in points],
                hovertemplate=f"<b>{plain(branch.name)}</b><br>%{{x:.4g}}: running mean <b>%{{y:.4f}}</b>"
                "<br>logged %{customdata[1]:.4f}<extra></extra>",
            )
        )
        if branch.status in ("failed", "diverged"):
            figure.add_trace(
                go.Scatter(
                    x=[points[-1][0] / size],
                    y=[points[-1][1]],
                    mode="markers",
                    marker={"symbol": "x", "size": 12, "color": colours[branch.name]},
                    hovertemplate=f"<b>{plain(branch.name)}</b> {plain(branch.status)}<extra></extra>",
                    showlegend=False,
                )
            )
    return figure


def screen(branches: Sequence[Branch]) -> Figure:
    """J, the relative gap of training loss to the baseline, against tokens; above the line a branch is rejected."""
    import plotly.graph_objects as go

    screened = [b for b in branches if b.gaps]
    size, title = token_axis(max((t for b in screened for t, _ in b.gaps), default=1))
    figure = go.Figure(layout=layout(x=title, y="J, loss gap to the baseline (%)"))
    colours = colours_of([b.name for b in branches])
    for branch in screened:
        rejected = branch.admitted is False
        figure.add_trace(
            go.Scatter(
                x=[t / size for t, _ in branch.gaps],
                y=[100 * gap for _, gap in branch.gaps],
                mode="lines+markers",
                name=plain(branch.name) + (" (rejected)" if rejected else ""),
                line={"color": colours[branch.name], "width": 2, "dash": "dash" if rejected else "solid"},
                marker={"size": 6, "symbol": "x" if rejected else "circle"},
                hovertemplate=f"<b>{plain(branch.name)}</b><br>%{{x:.4g}}: J <b>%{{y:+.3f}} %</b><extra></extra>",
            )
        )
    tolerance = next((b.tolerance for b in screened if b.tolerance is not None), None)
    if tolerance is not None:
        figure.add_hline(
            y=100 * tolerance,
            line={"dash": "dot", "color": QUIET, "width": 1.5},
            annotation={"text": f"tolerance {tolerance:.2%}", "xanchor": "right"},
        )
    return figure


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of the values up to each one, over a fixed window: no value of the future moves a point."""
    window = max(len(values) // SMOOTHED, 1)
    found: list[float] = []
    total = 0.0
    for i, value in enumerate(values):
        total += value - (values[i - window] if i >= window else 0.0)
        found.append(total / min(i + 1, window))
    return found


def thinned(points: Sequence[tuple[int, float]], *, most: int = MOST_POINTS) -> list[tuple[int, float]]:
    """At most `most` points: means over equal stretches, so that noise is drawn as its middle and not as an accident."""
    if len(points) <= most:
        return list(points)
    kept: list[tuple[int, float]] = []
    for i in range(most):
        part = points[i * len(points) // most : (i + 1) * len(points) // most]
        kept.append((part[-1][0], sum(loss for _, loss in part) / len(part)))
    return kept
