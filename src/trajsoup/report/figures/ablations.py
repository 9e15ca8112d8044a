"""What one choice is worth: coefficients, selections, asymmetric allocation, sampling density."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trajsoup.core.signal import Signal
from trajsoup.report.contents import Ablation, Variant
from trajsoup.report.figures.style import (
    QUIET,
    SOUP,
    colours_of,
    difference_text,
    layout,
    plain,
    score_text,
    shown,
    token_axis,
    tokens_text,
    unit,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


LEAST = {Signal.LOSS: 0.002, Signal.ACCURACY: 0.5}  # an axis is at least this long


def ablation(study: Ablation) -> Figure:
    """A curve where the variants have an order, otherwise one line for each with its interval."""
    return _ordered(study) if study.axis is not None else _listed(study)


def _ordered(study: Ablation) -> Figure:
    import plotly.graph_objects as go

    variants = sorted((v for v in study.variants if v.position is not None), key=lambda v: v.position or 0.0)
    series = list(dict.fromkeys(v.series for v in variants))
    size, title = 1.0, str(study.axis)
    if study.over_tokens:
        size, title = token_axis(round(max((v.position or 0.0 for v in variants), default=1.0)))
    elif len(series) == 1:
        title = f"{title}, {series[0]}"
    figure = go.Figure(layout=layout(x=plain(title), y=unit(study.rank_by), height=340, showlegend=len(series) > 1))
    colours = colours_of(series)
    for name in series:
        line = [v for v in variants if v.series == name]
        figure.add_trace(
            go.Scatter(
                x=[(v.position or 0.0) / size for v in line],
                y=[shown(v.value, study.rank_by) for v in line],
                mode="lines+markers",
                name=plain(name),
                line={"color": colours[name], "width": 2.2},
                marker={
                    "size": [13 if v.soup == study.default else 8 for v in line],
                    "color": [SOUP if v.soup == study.default else colours[name] for v in line],
                },
                error_y=_bars([_width(v, study.rank_by) for v in line]),
                customdata=[[v.soup, _hover(v, study)] for v in line],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    if not study.over_tokens:
        figure.update_xaxes(
            tickmode="array", tickvals=[v.position for v in variants], ticktext=[plain(v.label) for v in variants]
        )
    return figure


def _listed(study: Ablation) -> Figure:
    import plotly.graph_objects as go

    variants = list(reversed(study.variants))
    rank = study.rank_by
    figure = go.Figure(layout=layout(x=unit(rank), y="", height=100 + 38 * len(variants), showlegend=False))
    colours = [SOUP if v.soup == study.default else QUIET for v in variants]
    widths = [_width(v, rank) for v in variants]
    figure.add_trace(
        go.Scatter(
            x=[shown(v.value, rank) for v in variants],
            y=[plain(v.label) for v in variants],
            mode="markers",
            marker={"size": 12, "color": colours},
            error_x=_bars(widths),
            customdata=[[v.soup, _hover(v, study)] for v in variants],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )
    )
    ends = [shown(v.value, rank) + w for v, pair in zip(variants, widths, strict=True) for w in (-pair[1], pair[0])]
    room = LEAST[rank] - (max(ends) - min(ends))
    if room > 0:  # all but equal: rounding must not look like a difference
        figure.update_xaxes(range=[min(ends) - room / 2, max(ends) + room / 2])
    default = next((v for v in variants if v.soup == study.default), None)
    if default is not None:
        figure.add_vline(x=shown(default.value, rank), line={"dash": "dot", "width": 1.2, "color": SOUP})
    return figure


def _width(variant: Variant, rank: Signal) -> tuple[float, float]:
    """How far the interval reaches up and down: it is that of the difference, drawn around the value."""
    if variant.low is None or variant.high is None or variant.difference is None:
        return 0.0, 0.0
    return abs(shown(variant.high - variant.difference, rank)), abs(shown(variant.difference - variant.low, rank))


def _bars(widths: list[tuple[float, float]]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [w[0] for w in widths],
        "arrayminus": [w[1] for w in widths],
        "color": QUIET,
        "thickness": 1.6,
        "width": 5,
    }


def _hover(variant: Variant, study: Ablation) -> str:
    rank = study.rank_by
    at = f" at {tokens_text(variant.position or 0)} tokens each" if study.over_tokens else ""
    text = f"<b>{plain(variant.label)}</b>{at}<br>{plain(study.split)} <b>{score_text(variant.value, rank)}</b>"
    if variant.difference is not None:
        text += f"<br>{difference_text(variant.difference, rank)} from the reference"
    if variant.low is not None and variant.high is not None:
        text += f"<br>interval {difference_text(variant.low, rank)} to {difference_text(variant.high, rank)}"
    return text
