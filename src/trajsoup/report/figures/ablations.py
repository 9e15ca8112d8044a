"""What one choice is worth: coefficients, selections, asymmetric allocation, sampling density."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajsoup.report.contents import Ablation, Variant
from trajsoup.report.figures.style import (
    COLOURS,
    QUIET,
    SOUP,
    difference_text,
    layout,
    plain,
    score_text,
    shown,
    unit,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def ablation(study: Ablation) -> Figure:
    """A curve where the variants have an order, otherwise one line for each with its interval."""
    return _ordered(study) if study.axis is not None else _listed(study)


def _ordered(study: Ablation) -> Figure:
    import plotly.graph_objects as go

    variants = sorted((v for v in study.variants if v.position is not None), key=lambda v: v.position or 0.0)
    figure = go.Figure(layout=layout(x=plain(study.axis), y=unit(study.rank_by), height=340, showlegend=False))
    figure.add_trace(
        go.Scatter(
            x=[v.position for v in variants],
            y=[shown(v.value, study.rank_by) for v in variants],
            mode="lines+markers",
            line={"color": COLOURS[0], "width": 2.2},
            marker={
                "size": [13 if v.label == study.default else 8 for v in variants],
                "color": [SOUP if v.label == study.default else COLOURS[0] for v in variants],
            },
            customdata=[[v.soup, _hover(v, study)] for v in variants],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )
    )
    figure.update_xaxes(
        tickmode="array", tickvals=[v.position for v in variants], ticktext=[plain(v.label) for v in variants]
    )
    return figure


def _listed(study: Ablation) -> Figure:
    import plotly.graph_objects as go

    variants = list(reversed(study.variants))
    rank = study.rank_by
    figure = go.Figure(layout=layout(x=unit(rank), y="", height=100 + 38 * len(variants), showlegend=False))
    colours = [SOUP if v.label == study.default else QUIET for v in variants]
    # an interval is of the difference from the default: drawn around the value, it has the same width
    widths = [
        (0.0, 0.0)
        if v.low is None or v.high is None or v.difference is None
        else (abs(shown(v.high - v.difference, rank)), abs(shown(v.difference - v.low, rank)))
        for v in variants
    ]
    figure.add_trace(
        go.Scatter(
            x=[shown(v.value, rank) for v in variants],
            y=[plain(v.label) for v in variants],
            mode="markers",
            marker={"size": 12, "color": colours},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [w[0] for w in widths],
                "arrayminus": [w[1] for w in widths],
                "color": QUIET,
                "thickness": 1.6,
                "width": 5,
            },
            customdata=[[v.soup, _hover(v, study)] for v in variants],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )
    )
    default = next((v for v in variants if v.label == study.default), None)
    if default is not None:
        figure.add_vline(x=shown(default.value, rank), line={"dash": "dot", "width": 1.2, "color": SOUP})
    return figure


def _hover(variant: Variant, study: Ablation) -> str:
    rank = study.rank_by
    text = f"<b>{plain(variant.label)}</b><br>{plain(study.split)} <b>{score_text(variant.value, rank)}</b>"
    if variant.difference is not None:
        text += f"<br>{difference_text(variant.difference, rank)} from the default"
    if variant.low is not None and variant.high is not None:
        text += f"<br>interval {difference_text(variant.low, rank)} to {difference_text(variant.high, rank)}"
    return text
