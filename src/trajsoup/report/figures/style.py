"""How figures look, and how values are written: one place, so that the same branch has the same colour everywhere.

Background, text and grid are left to the page, which sets them for light or dark; colours here must be readable on
both. Names come from the user, and plotly reads a little HTML in them: `plain` keeps a branch called <b> a name.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal

# Okabe and Ito's palette, for readers who see few colours; black is left out (it vanishes on dark)
COLOURS = ("#0d8ecf", "#e69f00", "#12a17f", "#cc79a7", "#8172d6", "#d55e00", "#7a9a01", "#c9a800", "#b5534f", "#5a8f9c")
SOUP = "#e4572e"  # of Trajectory Soup, everywhere
QUIET = "#8a94a6"  # of what is there for comparison
DIVERGING = ((0.0, "#2b6cb0"), (0.5, "#e8e8ea"), (1.0, "#d9541e"))  # -1, 0, +1
SEQUENTIAL = ((0.0, "#e9eef5"), (0.35, "#9cc3de"), (0.7, "#2f7fb5"), (1.0, "#0b3c68"))
HEIGHT = 400


def plain(text: object) -> str:
    """A user's text, safe where plotly reads its little HTML; line breaks and template marks lose their meaning.

    The mark %{ is parted by a space of no width: it looks the same and is not read as a template.
    """
    return html.escape(str(text), quote=False).replace("\n", " ").replace("%{", "%\u200b{")


def colours_of(names: Sequence[str]) -> Mapping[str, str]:
    """A colour for each name, by position."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def strategy_colours(names: Sequence[str]) -> Mapping[str, str]:
    """One colour for each strategy, whatever stands in brackets behind it; Trajectory Soup keeps its own."""
    families = list(dict.fromkeys(family(name) for name in names))
    others = colours_of([name for name in families if "trajectory soup" not in name.lower()])
    return {name: others.get(family(name), SOUP) for name in names}


def family(name: str) -> str:
    """A strategy without its setting or branch: Model Soup (Limited) is Model Soup."""
    return name.partition(" (")[0]


def faded(colour: str, alpha: float) -> str:
    """The same colour, see-through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def beside(figure: Any) -> None:
    """Put the legend to the right of a wide figure; the page moves it above on a narrow one."""
    figure.update_layout(legend={"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top"})


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


def unit(rank_by: Signal) -> str:
    """The name of the axis."""
    return "loss (nats per token)" if rank_by is Signal.LOSS else "accuracy (%)"


def shown(value: float, rank_by: Signal) -> float:
    """A score as it is drawn: accuracies in percent."""
    return value if rank_by is Signal.LOSS else 100 * value


def score_text(value: float | None, rank_by: Signal) -> str:
    """A score in words and tables."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.4f}" if rank_by is Signal.LOSS else f"{100 * value:.2f}"


def difference_text(value: float | None, rank_by: Signal) -> str:
    """A signed difference, in nats or in points."""
    if value is None or not math.isfinite(value):
        return "–"
    if rank_by is not Signal.LOSS:
        text = f"{100 * value:+.2f} points"
    elif 1e-9 < abs(value) < 0.00005:  # below that it is rounding
        text = f"{value:+.1e} nats"
    else:
        text = f"{value:+.4f} nats"
    return text.replace("-", "−", 1)


def bare_difference(value: float | None, rank_by: Signal) -> str:
    """The same without its unit, for a column that says it once."""
    return difference_text(value, rank_by).rsplit(" ", 1)[0]


def signal_text(rank_by: Signal) -> str:
    """The signal and the unit of its differences."""
    return "loss, nats" if rank_by is Signal.LOSS else "accuracy, points"


def better(a: float, b: float, rank_by: Signal) -> bool:
    """Whether a is better than b."""
    return a < b if rank_by is Signal.LOSS else a > b


def best_of(values: Sequence[float], rank_by: Signal) -> float:
    """The best of some scores."""
    return min(values) if rank_by is Signal.LOSS else max(values)


def tokens_text(tokens: float) -> str:
    """Tokens for people."""
    return format_tokens(round(tokens))


def token_axis(longest: int, *, name: str = "tokens per branch") -> tuple[float, str]:
    """A divisor and the axis title that goes with it."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if longest >= 2 * size:
            return float(size), f"{name} ({letter})"
    return 1.0, name
