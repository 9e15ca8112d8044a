"""The answer as a picture: every paired comparison with its interval, against the line of no difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.report.contents import Difference, Evidence
from trajsoup.report.figures.style import QUIET, SOUP, difference_text, layout, plain, shown

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def differences(rows: Sequence[Difference], *, best: str | None = None) -> Figure:
    """One line for each comparison of one signal; filled where the interval excludes no difference."""
    import plotly.graph_objects as go

    loss = rows[0].rank_by is Signal.LOSS
    side = "nats per token; left is better" if loss else "points; right is better"
    height = 100 + 66 * len(rows)
    figure = go.Figure(
        layout=layout(x=f"difference on {rows[0].split} ({side})", y="", height=height, showlegend=False)
    )
    # names stand above their line, not beside it: a phone has no room on the left
    figure.update_yaxes(showticklabels=False, showgrid=False, range=[-0.4, len(rows) - 0.25], automargin=False)
    figure.update_layout(margin={"l": 16})
    for position, row in enumerate(reversed(rows)):
        colour = SOUP if row.model == best else QUIET
        value = shown(row.value, row.rank_by)
        low = value if row.low is None else shown(row.low, row.rank_by)
        high = value if row.high is None else shown(row.high, row.rank_by)
        sure = row.evidence is not Evidence.WITHIN_NOISE
        figure.add_trace(
            go.Scatter(
                x=[value],
                y=[position],
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
                marker={"size": 13, "color": colour, "symbol": "diamond" if sure else "diamond-open"},
                customdata=[[row.model, hover(row)]],
                hovertemplate="%{customdata[1]}<extra></extra>",
            )
        )
        figure.add_annotation(
            x=0,
            xref="paper",
            y=position,
            yshift=24,
            align="left",
            xanchor="left",
            showarrow=False,
            text=f"<b>{plain(row.label)}</b><br>minus {plain(row.reference)}",
            font={"size": 11},
        )
    figure.add_vline(x=0, line={"dash": "dot", "width": 1.5, "color": QUIET})
    return figure


def hover(row: Difference) -> str:
    """Exact values of a comparison."""
    lines = [f"<b>{plain(row.label)}</b> minus {plain(row.reference)}", difference_text(row.value, row.rank_by)]
    if row.low is not None and row.high is not None:
        level = "" if row.level is None else f"{row.level:.0%} "
        lines.append(
            f"{level}interval {difference_text(row.low, row.rank_by)} to {difference_text(row.high, row.rank_by)}"
        )
    if row.probability is not None:
        lines.append(f"probability of improvement {row.probability:.1%}")
    lines.append(f"{row.count:,} {'documents' if row.rank_by is Signal.LOSS else 'items'}, {plain(row.split)}")
    return "<br>".join(lines)
