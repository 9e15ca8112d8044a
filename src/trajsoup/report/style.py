"""How figures look, and how values are written: one place, so that the same branch has the same colour everywhere.

Background, text and grid are left to the page, which sets them for light or dark; colours here must be readable on
both. Names come from the user, and plotly reads a little HTML in them: `plain` keeps a branch called <b> a name.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report.table import MISSING
from trajsoup.report.words import SAME

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's palette, for readers who see few colours; black is left out (it vanishes on dark)
COLOURS = ("#0d8ecf", "#e69f00", "#12a17f", "#cc79a7", "#8172d6", "#d55e00", "#7a9a01", "#c9a800", "#b5534f", "#5a8f9c")
SOUP = "#e4572e"  # of Trajectory Soup, everywhere
QUIET = "#8a94a6"  # of what is there for comparison
DIVERGING = ((0.0, "#2b6cb0"), (0.5, "#e8e8ea"), (1.0, "#d9541e"))  # -1, 0, +1
SEQUENTIAL = ((0.0, "#e9eef5"), (0.35, "#9cc3de"), (0.7, "#2f7fb5"), (1.0, "#0b3c68"))
HEIGHT = 400
OURS = "trajectory-soup"  # the strategy that keeps its colour


def plain(text: object) -> str:
    """A user's text, safe where plotly reads its little HTML; line breaks and template marks lose their meaning.

    The mark %{ is parted by a space of no width: it looks the same and is not read as a template.
    """
    return html.escape(str(text), quote=False).replace("\n", " ").replace("%{", "%\u200b{")


def colours_of(names: Sequence[str]) -> Mapping[str, str]:
    """A colour for each name, by position."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def strategy_colours(strategies: Sequence[str]) -> Mapping[str, str]:
    """One colour for each strategy; Trajectory Soup keeps its own."""
    return {**colours_of([name for name in dict.fromkeys(strategies) if name != OURS]), OURS: SOUP}


def faded(colour: str, alpha: float) -> str:
    """The same colour, see-through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def beside(figure: Any) -> None:
    """Put the legend to the right of a wide figure; the page moves it above on a narrow one."""
    figure.update_layout(legend={"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top"})


def marks(names: Sequence[str | None], texts: Sequence[str]) -> dict[str, Any]:
    """For a trace: what a click on each mark opens (a soup or a checkpoint, by name), and what hovering shows."""
    return {
        "customdata": [[name, text] for name, text in zip(names, texts, strict=True)],
        "hovertemplate": "%{customdata[1]}<extra></extra>",
    }


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> dict[str, Any]:
    """A trace that fills the space between two lines."""
    return {
        "x": [*x, *reversed(x)],
        "y": [*high, *reversed(low)],
        "fill": "toself",
        "fillcolor": faded(colour, 0.14),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def bars(low: Sequence[float], high: Sequence[float], **look: Any) -> dict[str, Any]:
    """Error bars that reach so far down and up."""
    return {"type": "data", "symmetric": False, "array": list(high), "arrayminus": list(low), **look}


def layout(*, x: str, y: str, height: int = HEIGHT, **more: Any) -> dict[str, Any]:
    """The frame that all figures share."""
    return {
        "height": height,
        "margin": {"l": 64, "r": 20, "t": 20, "b": 56},
        "xaxis": {"title": {"text": x}, "automargin": True, "zeroline": False},
        "yaxis": {"title": {"text": y}, "automargin": True, "zeroline": False},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "hovermode": "closest",
        **more,
    }


def figure(**frame: Any) -> Figure:
    """An empty figure in that frame; plotly is loaded here and not before."""
    import plotly.graph_objects as go

    return go.Figure(layout=layout(**frame))


def unit(signal: Signal) -> str:
    """The name of the axis."""
    return "loss (nats per token)" if signal is Signal.LOSS else "accuracy (%)"


def shown(value: float, signal: Signal) -> float:
    """A score as it is drawn: accuracies in percent."""
    return signal.scale * value


def score_text(value: float | None, signal: Signal) -> str:
    """A score in words and tables."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{shown(value, signal):.{4 if signal is Signal.LOSS else 2}f}"


def bare_difference(value: float | None, signal: Signal) -> str:
    """A signed difference without its unit, for a column that says it once."""
    if value is None or not math.isfinite(value):
        return MISSING
    form = "+.2f" if signal is not Signal.LOSS else "+.1e" if 1e-9 < abs(value) < SAME else "+.4f"
    return f"{shown(value, signal):{form}}".replace("-", "−", 1)  # below 1e-9 it is rounding


def difference_text(value: float | None, signal: Signal) -> str:
    """A signed difference, in nats or in points."""
    bare = bare_difference(value, signal)
    return bare if bare == MISSING else f"{bare} {signal.unit}"


def size_text(value: float, signal: Signal) -> str:
    """A difference without its sign, for a sentence that says which side it is on."""
    return difference_text(abs(value), signal).removeprefix("+")


def signal_text(signal: Signal) -> str:
    """The signal and the unit of its differences."""
    return f"{signal.value}, {signal.unit}"


def interval_text(low: float | None, high: float | None, signal: Signal) -> str | None:
    """From one bound to the other; None where there is no interval."""
    if low is None or high is None:
        return None
    return f"{bare_difference(low, signal)} to {difference_text(high, signal)}"


def tokens_text(tokens: float) -> str:
    """Tokens for people."""
    return format_tokens(round(tokens))


def token_axis(longest: int, *, name: str = "tokens per branch") -> tuple[float, str]:
    """A divisor and the axis title that goes with it."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if longest >= 2 * size:
            return float(size), f"{name} ({letter})"
    return 1.0, name
