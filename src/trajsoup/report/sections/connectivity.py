"""On the way between models: straight segments, copies that fork later, trained curves, and the region of three anchors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.cells import score, signed, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.records.connectivity import ConnectivityRecord, JoinedPair
from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS


def section(records: Records) -> Section | None:
    """What was measured of it. None where the study asks for neither `connectivity` nor the sweep `region`."""
    record, region = records.read(ConnectivityRecord), sweep_of(records, "region")
    figures = [*_region_figures(region), *([] if record is None else _path_figures(record))]
    tables = [] if record is None else [_table(record)] * bool(record.pairs)
    return Section(figures=tuple(figures), numbers=tuple(tables)) if figures or tables else None


def _table(record: ConnectivityRecord) -> Table:
    """Every path with its instability."""
    return tabulate(
        "connectivity",
        "Paths between models (validation)",
        (*record.pairs, *record.depths, *record.curves),
        {
            "from": lambda p: text(p.first),
            "to": lambda p: text(p.second),
            "path": lambda p: text(p.path),
            "forked at": lambda p: tokens(p.depth),
            "tokens each": lambda p: tokens(p.tokens),
            "K": lambda p: number(p.k),
            "gradient tokens": lambda p: tokens(p.gradient_tokens or None),
            "loss at 0": lambda p: score(p.losses[0], LOSS),
            "loss at 1": lambda p: score(p.losses[-1], LOSS),
            "lowest": lambda p: score(p.best_loss, LOSS),
            "at": lambda p: number(p.best, "g"),
            "instability": lambda p: signed(p.instability, LOSS, low=p.low, high=p.high),
            "stable": lambda p: text("yes" if p.stable else "no"),
        },
        notes=(
            *record.notes,
            "Instability: the highest loss on the path minus the mean of its ends (Frankle 2020), with its interval over "
            "documents at the place where the loss is highest; stable below 2 % of that mean.",
        ),
    )


def _path_figures(record: ConnectivityRecord) -> list[Drawn]:
    pairs = Drawn(
        name="connectivity",
        title="Between two anchors (validation)",
        says=" ".join(record.words),
        draw=partial(_along, [(f"{p.first} to {p.second}", p) for p in record.pairs], dashed=False),
    )
    depths = Drawn(
        name="fork-depths",
        title="Copies of the baseline that forked later (validation)",
        says=" ".join(p.words for p in record.depths),
        draw=partial(_along, [(f"forked at {format_tokens(p.depth or 0)}", p) for p in record.depths], dashed=False),
    )
    joined = [p for c in record.curves[:1] for p in record.pairs if (p.first, p.second) == (c.first, c.second)]
    curves = Drawn(
        name="bent-curves",
        title="Trained curves beside the straight segment (validation)",
        says=" ".join(p.words for p in record.curves),
        draw=partial(
            _along, [(f"{p.first} to {p.second}, {p.path}", p) for p in (*joined, *record.curves)], dashed=True
        ),
    )
    return [pairs] * bool(record.pairs) + [depths] * bool(record.depths) + [curves] * bool(record.curves)


def _along(named: Sequence[tuple[str, JoinedPair]], *, dashed: bool) -> Figure:
    """The loss along every path, from one end to the other."""
    figure = style.figure(x="share of the way", y=style.unit(LOSS), height=400)
    for i, (name, path) in enumerate(named):
        straight = dashed and not path.gradient_tokens
        figure.add_scatter(
            x=path.grid,
            y=path.losses,
            mode="lines+markers",
            name=style.plain(name),
            line={"color": style.QUIET if straight else style.COLOURS[i % len(style.COLOURS)], "width": 2},
            marker={"size": 5},
            text=[style.plain(path.words)] * len(path.grid),
            hovertemplate="%{x:.0%}: <b>%{y:.4f}</b><br>%{text}<extra></extra>",
        )
    figure.update_xaxes(tickformat=".0%")
    return figure


def _region_figures(sweep: SweepRecord | None) -> list[Drawn]:
    if sweep is None:
        return []
    lines = dict.fromkeys(p.series for p in sweep.points)
    corners = _corners(sweep)
    triangle = [p for series in list(lines)[:1] for p in sweep.points if p.series == series]
    drawn = Drawn(
        name="region",
        title="The triangle between three anchors (validation)",
        says=" ".join(sweep.words),
        draw=partial(_triangle, triangle, corners),
    )
    every = Drawn(
        name="region-simplex",
        title="Random points between all anchors (validation)",
        says="Each point is a mixture of the anchors of all admitted branches, drawn uniformly, by its largest share.",
        draw=partial(_simplex, sweep.points),
    )
    return [drawn, every] if triangle and len(corners) == 3 else []


def _corners(sweep: SweepRecord) -> list[str]:
    """The branches of the first three points that are one anchor alone, in the order of the branches."""
    alone = {name for p in sweep.points if p.shares and len(p.shares) == 1 for name in p.shares}
    return [name for name in (sweep.points[0].branches if sweep.points else ()) if name in alone][:3]


def _hover(point: SweepPoint) -> str:
    shares = ", ".join(f"{share:.0%} {name}" for name, share in (point.shares or {}).items())
    return f"{style.plain(shares)}<br><b>{style.score_text(point.validation_loss, LOSS)}</b>"


def _triangle(points: Sequence[SweepPoint], corners: Sequence[str]) -> Figure:
    """Every point at its shares, coloured by its loss."""
    figure = style.figure(x="", y="", height=460)
    first, second, third = corners
    figure.add_scatterternary(
        a=[(p.shares or {}).get(first, 0) for p in points],
        b=[(p.shares or {}).get(second, 0) for p in points],
        c=[(p.shares or {}).get(third, 0) for p in points],
        mode="markers",
        showlegend=False,
        cliponaxis=False,
        marker={
            "size": 17,
            "symbol": "hexagon",
            "color": [p.validation_loss for p in points],
            "colorscale": style.SEQUENTIAL,
            "colorbar": {"title": {"text": "loss", "side": "right"}, "thickness": 12},
        },
        **style.marks([p.row for p in points], [_hover(p) for p in points]),
    )
    axes = {
        axis: {"title": {"text": style.plain(name)}, "tickformat": ".0%", "gridcolor": style.faded(style.QUIET, 0.3)}
        for axis, name in zip(("aaxis", "baxis", "caxis"), corners, strict=True)
    }
    figure.update_layout(ternary={"bgcolor": "rgba(0,0,0,0)", **axes})
    return figure


def _simplex(points: Sequence[SweepPoint]) -> Figure:
    """Loss over the largest share: corners to the right, the middle to the left."""
    figure = style.figure(x="largest share of one branch", y=style.unit(LOSS), height=460)
    mixed = [p for p in points if p.shares]
    colours = style.colours_of(list(dict.fromkeys(p.series for p in mixed)))
    for series, colour in colours.items():
        mine = [p for p in mixed if p.series == series]
        figure.add_scatter(
            x=[max((p.shares or {}).values()) for p in mine],
            y=[p.validation_loss for p in mine],
            mode="markers",
            name=style.plain(series),
            marker={"size": 9, "color": colour},
            **style.marks([p.row for p in mine], [_hover(p) for p in mine]),
        )
    figure.update_xaxes(tickformat=".0%")
    return figure
