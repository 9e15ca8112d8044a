"""Scores over tokens: strategies and raw checkpoints, overall and per category; serial saturation.

fig:traj-soup-performance-curves and fig:midtraining-saturation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajsoup.report.contents import Curve, CurvePanel
from trajsoup.report.figures.style import (
    HEIGHT,
    QUIET,
    SOUP,
    beside,
    colours_of,
    faded,
    family,
    layout,
    plain,
    score_text,
    shown,
    strategy_colours,
    token_axis,
    tokens_text,
    unit,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BUDGET = "token budget"  # of sec:setup: per branch; in the Limited setting of all branches together
DASHES = ("solid", "dash", "dot", "dashdot")


def over_tokens(panel: CurvePanel) -> Figure:
    """Every strategy against tokens, raw checkpoints behind; rings mark the ingredients of the best soup.

    A strategy has one colour; its Limited curve is dashed. Merges of single branches share one entry of the legend.
    """
    import plotly.graph_objects as go

    size, title = token_axis(max((p.tokens for c in panel.curves for p in c.points), default=1), name=BUDGET)
    figure = go.Figure(layout=layout(x=title, y=unit(panel.rank_by), height=HEIGHT))
    beside(figure)
    raw = [c for c in panel.curves if c.raw]
    merged = [c for c in panel.curves if not c.raw]
    colours = strategy_colours([c.name for c in merged])
    bounds = focus(panel)
    if bounds is not None:
        figure.update_yaxes(range=[shown(value, panel.rank_by) for value in bounds])
    quiet = {c.name: faded(QUIET, 0.9) for c in raw}
    for i, curve in enumerate(raw):
        trace = _trace(curve, panel, size, quiet, dash=DASHES[i % len(DASHES)], width=1.2)
        trace |= {"legendgroup": "raw", "showlegend": i == 0, "name": "raw checkpoints"}
        figure.add_trace(go.Scatter(**trace))
    for curve in sorted(merged, key=lambda c: colours[c.name] == SOUP):  # ours lies on top
        figure.add_trace(go.Scatter(**_strategy(curve, panel, size, colours, merged)))
    chosen = [(p, c) for c in raw for p in c.points if p.selected]
    if chosen:
        figure.add_trace(
            go.Scatter(
                x=[p.tokens / size for p, _ in chosen],
                y=[shown(p.value, panel.rank_by) for p, _ in chosen],
                mode="markers",
                name="in the best soup",
                marker={"size": 12, "color": "rgba(0,0,0,0)", "line": {"width": 2, "color": SOUP}},
                customdata=[[p.name, _hover(p.name, c.name, p.tokens, p.value, panel)] for p, c in chosen],
                hovertemplate="%{customdata[1]}<br>an ingredient of the best soup<extra></extra>",
            )
        )
    return figure


def focus(panel: CurvePanel) -> tuple[float, float] | None:
    """A range of scores that leaves out raw checkpoints from before the first merge; None: nothing is left out.

    The first checkpoints after the fork point are so far off that everything else would be one line.
    """
    merged = [p for c in panel.curves if not c.raw for p in c.points]
    raw = [p for c in panel.curves if c.raw for p in c.points]
    if not merged or not raw:
        return None
    first = min(p.tokens for p in merged)
    late = [p for p in raw if p.tokens >= first]
    if not late:
        return None
    kept = [p.value for p in (*merged, *late)]
    low, high = min(kept), max(kept)
    pad = 0.08 * (high - low) or 0.01
    bounds = (low - pad, high + pad)
    return None if all(bounds[0] <= p.value <= bounds[1] for p in raw) else bounds


def categories(panels: Sequence[CurvePanel]) -> Figure:
    """Small multiples: the same strategies, one panel for each category."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    grid = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[plain(p.category) for p in panels],
        horizontal_spacing=0.09,
        vertical_spacing=min(0.12, 0.5 / rows),
    )
    figure = go.Figure(grid)
    names = list(dict.fromkeys(c.name for p in panels for c in p.curves if not c.raw))
    colours = strategy_colours(names)
    seen: set[str] = set()
    size, title = token_axis(
        max((q.tokens for p in panels for c in p.curves for q in c.points), default=1), name=BUDGET
    )
    for i, panel in enumerate(panels):
        for curve in panel.curves:
            if curve.raw:
                continue
            trace = _strategy(curve, panel, size, colours, panel.curves)
            trace["showlegend"] = trace["name"] not in seen
            seen.add(trace["name"])
            figure.add_trace(go.Scatter(**trace), row=i // columns + 1, col=i % columns + 1)
    frame = layout(x="", y="", height=80 + 250 * rows)
    figure.update_layout({k: v for k, v in frame.items() if k not in ("xaxis", "yaxis")})
    beside(figure)
    figure.update_layout(margin={"t": 40})
    figure.update_xaxes(zeroline=False, automargin=True)
    figure.update_yaxes(zeroline=False, automargin=True)
    figure.update_xaxes(title_text=title, row=rows)
    return figure


def saturation(panel: CurvePanel) -> Figure:
    """Raw checkpoints of every branch: how the gain per token shrinks along one run."""
    import plotly.graph_objects as go

    raw = [c for c in panel.curves if c.raw]
    size, title = token_axis(max((p.tokens for c in raw for p in c.points), default=1))
    figure = go.Figure(layout=layout(x=title, y=unit(panel.rank_by), height=360))
    colours = colours_of([c.name for c in raw])
    for curve in raw:
        figure.add_trace(go.Scatter(**_trace(curve, panel, size, colours, dash="solid", width=2)))
    return figure


def _strategy(
    curve: Curve, panel: CurvePanel, size: float, colours: Mapping[str, str], curves: Sequence[Curve]
) -> dict[str, Any]:
    """A strategy's line: Limited dashed, and branches merged alone thin and under one name."""
    kin = [c.name for c in curves if not c.raw and family(c.name) == family(curve.name)]
    alone = all("Limited" not in name and "Extended" not in name for name in kin) and len(kin) > 1
    dash = "dash" if "Limited" in curve.name else "solid"
    trace = _trace(curve, panel, size, colours, dash=dash, width=1.4 if alone else 2.6)
    trace["marker"]["size"] = 4 if alone else 7
    if "Limited" in curve.name:
        trace["marker"]["symbol"] = "circle-open"
    if alone:
        trace |= {"name": f"{plain(family(curve.name))} (each branch)", "showlegend": curve.name == kin[0]}
    return {**trace, "legendgroup": trace["name"]}


def _trace(
    curve: Curve, panel: CurvePanel, size: float, colours: Mapping[str, str], *, dash: str, width: float
) -> dict[str, Any]:
    return {
        "x": [p.tokens / size for p in curve.points],
        "y": [shown(p.value, panel.rank_by) for p in curve.points],
        "name": plain(curve.name),
        "mode": "lines+markers",
        "line": {"color": colours[curve.name], "width": width, "dash": dash},
        "marker": {"size": 4 if curve.raw else 7, "color": colours[curve.name]},
        "customdata": [[p.name, _hover(p.name, curve.name, p.tokens, p.value, panel)] for p in curve.points],
        "hovertemplate": "%{customdata[1]}<extra></extra>",
    }


def _hover(name: str, curve: str, tokens: int, value: float, panel: CurvePanel) -> str:
    return (
        f"<b>{plain(curve)}</b> at {tokens_text(tokens)} tokens<br>{plain(panel.split)} "
        f"{'loss' if panel.rank_by.value == 'loss' else 'accuracy'} <b>{score_text(value, panel.rank_by)}</b>"
        f"<br>{plain(name)}"
    )
