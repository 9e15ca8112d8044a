"""Figures of all methods: how far each is from Trajectory Soup, and how good it is for what it spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.study.records.comparisons import ComparisonRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS
NEAR = 4.0  # times the median distance from zero: what lies further is beyond the edge until somebody zooms out
ROW = 22  # pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A model against Trajectory Soup, in nats on test."""

    method: str
    level: str
    value: float
    low: float
    high: float
    opens: str | None  # the soup that a click opens


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A model by what it spent."""

    level: str
    tokens: float
    loss: float | None  # on test; None: it is no number
    words: str  # when somebody hovers over it
    ours: bool = False
    opens: str | None = None


def difference_of(c: ComparisonRecord, *, method: str, level: str, opens: str | None) -> Difference | None:
    """A comparison as a mark; one that is no number is none. Without an interval it is a mark alone."""
    if c.difference is None:
        return None
    low, high = (c.difference if bound is None else bound for bound in (c.low, c.high))
    return Difference(method=method, level=level, value=c.difference, low=low, high=high, opens=opens)


def differences(found: Sequence[Difference]) -> Figure:
    """A line for each method, the best at its best level on top; a mark for each level."""
    best = {m: min(d.value for d in found if d.method == m) for m in dict.fromkeys(d.method for d in found)}
    order = sorted(best, key=lambda method: -best[method])
    levels = list(dict.fromkeys(d.level for d in found))
    colours = style.colours_of(levels)
    title = "test loss minus that of Trajectory Soup (nats per token): left is better"
    figure = style.figure(x=title, y="", height=130 + ROW * len(order))
    for level in levels:
        marks = [d for d in found if d.level == level]
        figure.add_scatter(
            x=[d.value for d in marks],
            y=[style.plain(d.method) for d in marks],
            mode="markers",
            name=style.plain(level),
            marker={"size": 9, "color": colours[level]},
            error_x=style.bars(
                [d.value - d.low for d in marks],
                [d.high - d.value for d in marks],
                color=style.faded(colours[level], 0.6),
                thickness=1.4,
                width=3,
            ),
            **style.marks([d.opens for d in marks], [_words(d) for d in marks]),
        )
    figure.update_yaxes(categoryorder="array", categoryarray=[style.plain(method) for method in order])
    figure.add_vline(x=0, line={"dash": "dot", "width": 1.4, "color": style.SOUP})
    far = sorted(abs(d.value) for d in found)
    edge = NEAR * far[len(far) // 2] if far else 0.0
    if far and far[-1] > edge > 0:  # the near ones would lie on top of each other
        figure.update_xaxes(range=[min(0.0, *(d.low for d in found)) - edge / 20, edge])
    return figure


def _words(d: Difference) -> str:
    interval = style.interval_text(d.low, d.high, LOSS)
    said = f"<b>{style.plain(d.method)}</b>, {style.plain(d.level)}<br>{style.difference_text(d.value, LOSS)}"
    return f"{said} from Trajectory Soup<br>{style.plain(interval)}"


def over_budget(found: Sequence[Placed]) -> Figure:
    """Test loss over tokens of training and gradients, a mark for each method, those that train included."""
    size, title = style.token_axis(round(max(p.tokens for p in found)), name="tokens of training and of gradients")
    figure = style.figure(x=style.plain(title), y=style.unit(LOSS), height=460)
    levels = list(dict.fromkeys(p.level for p in found))
    colours = style.colours_of(levels)
    for level in levels:
        points = sorted(
            (p for p in found if p.level == level), key=lambda p: p.ours
        )  # a legend has the first one's colour
        figure.add_scatter(
            x=[p.tokens / size for p in points],
            y=[p.loss for p in points],
            mode="markers",
            name=style.plain(level),
            marker={
                "size": [14 if p.ours else 9 for p in points],
                "color": [style.SOUP if p.ours else colours[level] for p in points],
            },
            **style.marks([p.opens for p in points], [p.words for p in points]),
        )
    return figure
