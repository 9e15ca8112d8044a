"""The answer as a picture: every strategy against the best single-trajectory merge, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajsoup.report.contents import Answer
from trajsoup.report.figures.style import QUIET, SOUP, difference_text, layout, plain, shown

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def differences(answer: Answer) -> Figure:
    """One line for each strategy; the zero line is the best single-trajectory merge."""
    import plotly.graph_objects as go

    rank = answer.rank_by
    rows = list(reversed(answer.differences))
    figure = go.Figure(
        layout=layout(
            x=f"difference from {plain(answer.reference)} on {plain(answer.split)} "
            + ("(nats per token; left is better)" if rank.value == "loss" else "(points; right is better)"),
            y="",
            height=110 + 44 * len(rows),
            showlegend=False,
        )
    )
    for row in rows:
        colour = SOUP if row.soup == answer.soup else QUIET
        value = shown(row.value, rank)
        low = value if row.low is None else shown(row.low, rank)
        high = value if row.high is None else shown(row.high, rank)
        interval = (
            "no interval"
            if row.low is None or row.high is None
            else f"{row.level:.0%} interval {difference_text(row.low, rank)} to {difference_text(row.high, rank)}"
        )
        text = f"<b>{plain(row.label)}</b><br>{difference_text(row.value, rank)}<br>{interval}"
        if row.count is not None:
            text += f"<br>{row.count:,} test {'documents' if rank.value == 'loss' else 'items'}"
        figure.add_trace(
            go.Scatter(
                x=[value],
                y=[plain(row.label)],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [high - value],
                    "arrayminus": [value - low],
                    "thickness": 2.5,
                    "width": 6,
                    "color": colour,
                },
                mode="markers",
                marker={"size": 13, "color": colour, "symbol": "diamond" if row.soup == answer.soup else "circle"},
                customdata=[[row.soup, text]],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
    figure.add_vline(x=0, line={"dash": "dot", "width": 1.5, "color": QUIET})
    return figure
