"""Compute frontier, the (N, K) surface, merge size, and what the theory predicts against what was measured.

fig:trajectory-soup-compute-allocation and fig:traj-soup-trajectory-scaling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajsoup.report.contents import ComputePoint, Frontier, Surface
from trajsoup.report.figures.style import (
    QUIET,
    SEQUENTIAL,
    SOUP,
    best_of,
    colours_of,
    faded,
    layout,
    plain,
    score_text,
    shown,
    unit,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def compute_frontier(frontier: Frontier) -> Figure:
    """Scores over cumulative training FLOPs on a logarithmic axis, with a power law for raw training and for soups."""
    import plotly.graph_objects as go

    rank = frontier.rank_by
    figure = go.Figure(layout=layout(x="training compute of all branches (FLOPs)", y=unit(rank), height=430))
    figure.update_xaxes(type="log", exponentformat="power", dtick=1, minor={"dtick": "D1", "showgrid": False})
    for fit, colour in zip(frontier.fits, (QUIET, SOUP), strict=False):
        if not fit.computes:
            continue
        if fit.low:
            figure.add_trace(
                go.Scatter(
                    x=[*fit.computes, *reversed(fit.computes)],
                    y=[shown(v, rank) for v in (*fit.high, *reversed(fit.low))],
                    fill="toself",
                    fillcolor=faded(colour, 0.14),
                    line={"width": 0},
                    hoverinfo="skip",
                    showlegend=False,
                )
            )
        last = fit.last_measured or fit.computes[-1]
        inside = [(c, s) for c, s in zip(fit.computes, fit.scores, strict=True) if c <= last * (1 + 1e-9)]
        outside = [(c, s) for c, s in zip(fit.computes, fit.scores, strict=True) if c >= last * (1 - 1e-9)]
        for part, dash in ((inside, "solid"), (outside, "dot")):
            if len(part) > 1:
                figure.add_trace(
                    go.Scatter(
                        x=[c for c, _ in part],
                        y=[shown(s, rank) for _, s in part],
                        mode="lines",
                        line={"color": colour, "width": 2, "dash": dash},
                        name=plain(fit.label) if dash == "solid" else f"{plain(fit.label)}, extrapolated",
                        hovertemplate=f"{plain(fit.label)}<br>%{{x:.3g}} FLOPs: %{{y:.4f}}<extra></extra>",
                        showlegend=dash == "solid",
                    )
                )
    for points, name, colour, symbol in (
        (frontier.raw, "raw checkpoints", QUIET, "circle"),
        ([p for p in frontier.soups if not p.on_frontier], "soups", faded(SOUP, 0.45), "circle-open"),
        ([p for p in frontier.soups if p.on_frontier], "soups on the frontier", SOUP, "diamond"),
    ):
        if points:
            figure.add_trace(
                go.Scatter(
                    x=[p.compute for p in points],
                    y=[shown(p.score, rank) for p in points],
                    mode="markers",
                    name=name,
                    marker={"color": colour, "size": 10 if symbol == "diamond" else 7, "symbol": symbol},
                    customdata=[[p.name, _hover(p, frontier)] for p in points],
                    hovertemplate="%{customdata[1]}<extra></extra>",
                )
            )
    return figure


def surface(sweep: Surface) -> Figure:
    """A heat map of N branches by K checkpoints; each cell is one soup."""
    import plotly.graph_objects as go

    rank = sweep.rank_by
    ns = sorted({c.n_branches for c in sweep.cells})
    ks = sorted({c.k for c in sweep.cells})
    found = {(c.n_branches, c.k): c for c in sweep.cells}
    z = [[shown(found[n, k].value, rank) if (n, k) in found else None for k in ks] for n in ns]
    best = best_of([c.value for c in sweep.cells], rank)
    text = [
        [
            ("★<br><b>" if found[n, k].value == best else "")
            + score_text(found[n, k].value, rank)
            + ("</b>" if found[n, k].value == best else "")
            if (n, k) in found
            else ""
            for k in ks
        ]
        for n in ns
    ]
    custom = [
        [
            [found[n, k].name, f"N = {n}, K = {k}, M = {n * k}<br><b>{score_text(found[n, k].value, rank)}</b>"]
            if (n, k) in found
            else [None, "not merged"]
            for k in ks
        ]
        for n in ns
    ]
    figure = go.Figure(layout=layout(x="K, checkpoints per branch", y="N, branches", height=140 + 52 * len(ns)))
    figure.add_trace(
        go.Heatmap(
            x=[str(k) for k in ks],
            y=[str(n) for n in ns],
            z=z,
            text=text,
            texttemplate="%{text}",
            textfont={"size": 12},
            customdata=custom,
            hovertemplate="%{customdata[1]}<extra></extra>",
            colorscale=SEQUENTIAL,
            reversescale=rank.value == "loss",
            colorbar={"title": {"text": unit(rank), "side": "right", "font": {"size": 12}}, "thickness": 12},
            xgap=2,
            ygap=2,
        )
    )
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    return figure


def merge_size(sweep: Surface) -> Figure:
    """The same soups over M = N K, one curve for each N."""
    import plotly.graph_objects as go

    rank = sweep.rank_by
    figure = go.Figure(layout=layout(x="M = N K, checkpoints in the soup", y=unit(rank)))
    ns = sorted({c.n_branches for c in sweep.cells})
    colours = colours_of([str(n) for n in ns])
    for n in ns:
        cells = sorted((c for c in sweep.cells if c.n_branches == n), key=lambda c: c.merge_size)
        figure.add_trace(
            go.Scatter(
                x=[c.merge_size for c in cells],
                y=[shown(c.value, rank) for c in cells],
                mode="lines+markers",
                name=f"N = {n}",
                line={"color": colours[str(n)], "width": 2.2},
                marker={"size": 7},
                customdata=[
                    [c.name, f"N = {n}, K = {c.k}, M = {c.merge_size}<br><b>{score_text(c.value, rank)}</b>"]
                    for c in cells
                ],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    return figure


def predicted(sweep: Surface) -> Figure:
    """What the theory promised for each soup against what was measured; on the line they agree."""
    import plotly.graph_objects as go

    rank = sweep.rank_by
    cells = [c for c in sweep.cells if c.predicted is not None]
    figure = go.Figure(layout=layout(x=f"predicted {unit(rank)}", y=f"measured {unit(rank)}", height=380))
    values = [shown(v, rank) for c in cells for v in (c.value, c.predicted or 0.0)]
    ends = [min(values), max(values)]
    figure.add_trace(
        go.Scatter(
            x=ends, y=ends, mode="lines", line={"dash": "dot", "color": QUIET}, name="agreement", hoverinfo="skip"
        )
    )
    ns = sorted({c.n_branches for c in cells})
    colours = colours_of([str(n) for n in sorted({c.n_branches for c in sweep.cells})])
    for n in ns:
        mine = [c for c in cells if c.n_branches == n]
        figure.add_trace(
            go.Scatter(
                x=[shown(c.predicted or 0.0, rank) for c in mine],
                y=[shown(c.value, rank) for c in mine],
                mode="markers",
                name=f"N = {n}",
                marker={"size": 9, "color": colours[str(n)]},
                customdata=[
                    [
                        c.name,
                        f"N = {n}, K = {c.k}<br>predicted {score_text(c.predicted, rank)}<br>measured "
                        f"<b>{score_text(c.value, rank)}</b>",
                    ]
                    for c in mine
                ],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    return figure


def _hover(point: ComputePoint, frontier: Frontier) -> str:
    shape = "" if point.k is None else f"<br>N = {point.n_branches}, K = {point.k}"
    return (
        f"<b>{plain(point.label)}</b>{shape}<br>{point.compute:.4g} FLOPs<br>{plain(frontier.split)} "
        f"<b>{score_text(point.score, frontier.rank_by)}</b><br>{plain(point.name)}"
    )
