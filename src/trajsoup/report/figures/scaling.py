"""Compute frontier, the (N, K) surface, merge size, and what the theory predicts against what was measured.

fig:trajectory-soup-compute-allocation and fig:traj-soup-trajectory-scaling.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.report.contents import ComputePoint, Frontier, Surface, Theory
from trajsoup.report.figures.style import (
    QUIET,
    SEQUENTIAL,
    SOUP,
    beside,
    best_of,
    colours_of,
    difference_text,
    faded,
    layout,
    plain,
    score_text,
    shown,
    strategy_colours,
    unit,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def compute_frontier(frontier: Frontier) -> Figure:
    """Scores over cumulative training FLOPs on a logarithmic axis, with a power law for raw training and for soups."""
    import plotly.graph_objects as go

    rank = frontier.rank_by
    what = "FLOPs" if frontier.in_flops else "tokens"
    figure = go.Figure(layout=layout(x=f"training of all branches ({what})", y=unit(rank), height=440))
    beside(figure)
    figure.update_xaxes(type="log", exponentformat="power", dtick=1, minor={"dtick": "D1", "showgrid": False})
    colours = {p.series: QUIET for p in frontier.points if p.raw}
    colours |= strategy_colours(list(dict.fromkeys(p.series for p in frontier.points if not p.raw)))
    for fit in frontier.fits:
        colour = colours.get(fit.label, QUIET)
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
                        name=f"law of {plain(fit.label)}",
                        hovertemplate=f"{plain(fit.label)}<br>%{{x:.3g}} {what}: %{{y:.4f}}<extra></extra>",
                        showlegend=dash == "solid",
                    )
                )
    for series, colour in colours.items():
        mine = [p for p in frontier.points if p.series == series]
        figure.add_trace(
            go.Scatter(
                x=[p.compute for p in mine],
                y=[shown(p.score, rank) for p in mine],
                mode="markers",
                name=plain(series),
                marker={
                    "color": colour,
                    "size": [10 if p.on_frontier else 7 for p in mine],
                    "symbol": [_symbol(p) for p in mine],
                },
                customdata=[[p.name, _hover(p, frontier)] for p in mine],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    for arrow in frontier.arrows:
        figure.add_annotation(
            x=math.log10(arrow.end[0]),
            y=shown(arrow.end[1], rank),
            ax=math.log10(arrow.start[0]),
            ay=shown(arrow.start[1], rank),
            axref="x",
            ayref="y",
            arrowhead=2,
            arrowwidth=2,
            arrowcolor=SOUP if arrow.gain > 0 else QUIET,
            text="",
        )
        figure.add_annotation(
            x=math.log10(arrow.end[0]),
            y=shown(arrow.end[1], rank),
            xshift=8,
            yshift=-14 if arrow.gain > 0 else 14,
            xanchor="left",
            showarrow=False,
            font={"size": 11},
            text=f"{plain(arrow.name)} {difference_text(arrow.gain, rank)}",
        )
    return figure


def _symbol(point: ComputePoint) -> str:
    return "circle" if point.raw else "diamond" if point.on_frontier else "diamond-open"


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


def predicted(theory: Theory) -> Figure:
    """What soups of one and two branches promise for every larger soup against what it measured."""
    import plotly.graph_objects as go

    rank, soups = Signal.LOSS, theory.record.soups
    figure = go.Figure(layout=layout(x=f"predicted {unit(rank)}", y=f"measured {unit(rank)}", height=380))
    values = [shown(v, rank) for soup in soups for v in (soup.predicted, soup.measured)]
    ends = [min(values), max(values)]
    figure.add_trace(
        go.Scatter(
            x=ends, y=ends, mode="lines", line={"dash": "dot", "color": QUIET}, name="agreement", hoverinfo="skip"
        )
    )
    colours = colours_of([str(n) for n in sorted({c.n_branches for c in theory.record.cells})])
    for n in sorted({len(soup.branches) for soup in soups}):
        mine = [soup for soup in soups if len(soup.branches) == n]
        figure.add_trace(
            go.Scatter(
                x=[shown(soup.predicted, rank) for soup in mine],
                y=[shown(soup.measured, rank) for soup in mine],
                mode="markers",
                name=f"N = {n}",
                marker={"size": 9, "color": colours[str(n)]},
                customdata=[
                    [
                        theory.row(soup),
                        f"<b>{plain(' + '.join(soup.branches))}</b>, K = {soup.k}"
                        f"<br>predicted {score_text(soup.predicted, rank)}"
                        f"<br>measured <b>{score_text(soup.measured, rank)}</b>",
                    ]
                    for soup in mine
                ],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    return figure


def _hover(point: ComputePoint, frontier: Frontier) -> str:
    shape = "" if point.k is None else f"<br>N = {point.n_branches}, K = {point.k}"
    what = "FLOPs" if frontier.in_flops else "tokens"
    return (
        f"<b>{plain(point.series)}</b> of {plain(point.label)}{shape}<br>{point.compute:.4g} {what}<br>"
        f"{plain(frontier.split)} <b>{score_text(point.score, frontier.rank_by)}</b><br>{plain(point.name)}"
    )
