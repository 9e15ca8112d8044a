"""Draw docs/images/growth.svg from results/growth.json: seconds and memory over everything that grows.

python benchmarks/growth_figure.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import log10
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from trajsoup.report.export import HOW_TO_GET_ONE, draw_images, find_browser
from trajsoup.report.style import COLOURS, QUIET

CURVES = Path(__file__).parent / "results" / "growth.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "growth.svg"
PANELS = {  # axis of growth.py -> what is written below its panel
    "tensors": "tensors",
    "ingredients": "ingredients",
    "shards": "shards",
    "outputs": "outputs",
    "size": "MB each",
}
MEASURES = (("seconds", "processor time, s", 1.0, COLOURS[0]), ("bytes", "memory, MB", 1e-6, COLOURS[1]))


def main() -> None:
    browser = find_browser()
    if browser is None:
        raise SystemExit(f"no browser: {HOW_TO_GET_ONE}")
    spec = json.loads(figure(json.loads(CURVES.read_text(encoding="utf-8"))).to_json())
    PICTURE.write_bytes(draw_images({"growth": spec}, browser=browser)["growth", "svg"])


def figure(curves: Mapping[str, Mapping[str, list[float]]]) -> Any:
    """A column for every axis, a row for time and one for memory; a dotted line doubles when its axis does."""
    drawn = make_subplots(rows=2, cols=len(PANELS), shared_xaxes=True, horizontal_spacing=0.055, vertical_spacing=0.06)
    for column, (axis, below) in enumerate(PANELS.items(), start=1):
        curve = curves[axis]
        at = curve["at"]
        for row, (measure, beside, factor, colour) in enumerate(MEASURES, start=1):
            values = [value * factor for value in curve[measure]]
            proportional = [values[-1] * x / at[-1] for x in at]
            place = {"row": row, "col": column}
            drawn.add_trace(
                go.Scatter(x=at, y=proportional, mode="lines", line={"color": QUIET, "dash": "dot"}), **place
            )
            drawn.add_trace(go.Scatter(x=at, y=values, mode="lines+markers", line={"color": colour}), **place)
            drawn.update_xaxes(type="log", dtick=1, showgrid=False, **place)
            low, high = min(values), max(values)
            drawn.update_yaxes(type="log", dtick=1, range=[log10(low) - 0.3, log10(high) + 0.3], **place)
            if column == 1:
                drawn.update_yaxes(title=beside, **place)
            if row == len(MEASURES):
                drawn.update_xaxes(title=below, **place)
    return drawn.update_layout(
        template="plotly_white",
        showlegend=False,
        height=430,
        font={"size": 11},
        margin={"l": 55, "r": 10, "t": 10, "b": 45},
    )


if __name__ == "__main__":
    main()
