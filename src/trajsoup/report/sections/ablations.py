"""What one choice is worth: coefficients, selections, asymmetric allocation, sampling density, and any further sweep.

tab:tiny-coefficient-selection-ablation, fig:traj-soup-asym-allocation, fig:traj-soup-sample-ablation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report import style
from trajsoup.report.cells import difference, estimate, score, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.report.words import SAME
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord
from trajsoup.study.sweeps import SWEEPS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS
LEAST = 0.002  # nats: an axis is at least this long


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A point of the sweep, drawn: its loss, and what it differs from the default."""

    point: SweepPoint
    place: float  # on the x axis of a curve
    value: float
    compared: ComparisonRecord | None

    @property
    def label(self) -> str:
        """Its name: over tokens, that of its line."""
        return str(self.point.x) if isinstance(self.point.x, str) else self.point.series

    @property
    def bounds(self) -> tuple[float, float]:
        """How far the interval of the difference reaches down and up, drawn around the value."""
        c = self.compared
        if c is None or c.difference is None or c.low is None or c.high is None:
            return 0.0, 0.0
        return c.difference - c.low, c.high - c.difference


def section(records: Records) -> Section | None:
    """Every sweep that no other section draws: on test where it was reported there, otherwise on validation."""
    order = [name for name, kind in SWEEPS.items() if not kind.own_section]
    found = [s for s in records.every(SweepRecord).values() if s.points and (s.kind in order or s.kind not in SWEEPS)]
    sweeps = sorted(
        found, key=lambda s: order.index(s.kind) if s.kind in order else len(order)
    )  # as the table has them
    figures = tuple(
        Drawn(
            name=f"ablation-{s.name}",
            title=s.title,
            says=says(s),
            draw=partial(_curve if _is_curve(s) else _listed, s),
        )
        for s in sweeps
    )
    if not sweeps:
        return None
    return Section(figures=figures, numbers=tuple(sweep_table(s) for s in sweeps))


def sweep_table(record: SweepRecord) -> Table:
    """One comparison of the paper, every point of it."""
    free = list(dict.fromkeys(name for p in record.points for name in p.chosen_on.free))
    chosen = f"Chosen on validation: {', '.join(free)}." if free else "Nothing was chosen: every row is prescribed."
    apart = [c for c in record.comparisons if c.signal is LOSS and record.default is None]  # no column can show them
    return tabulate(
        f"ablation-{record.name}",
        f"{record.title} ({record.paper})",
        record.points,
        {
            "series": lambda p: text(p.series),
            record.x_label: lambda p: text(p.x) if isinstance(p.x, str) else number(p.x, "g"),
            "K": lambda p: number(p.k),
            "merged": lambda p: number(p.merge_size),
            "tokens each": lambda p: tokens(p.horizon),  # where that is the axis, the same column
            "validation loss": lambda p: score(p.validation_loss, LOSS),
            "test loss": lambda p: estimate(p.test_loss, LOSS),
            "test average": lambda p: estimate(p.test_accuracy, Signal.ACCURACY),
            "loss from the default": lambda p: difference(record.from_default(p.row, LOSS)),
        },
        soup=lambda p: p.row,
        ours=lambda p: p.row == record.default,
        notes=(*(record.notes or (chosen,)), *(f"{c.label}: {difference(c).text}" for c in apart)),
    )


def variants(record: SweepRecord) -> tuple[Split, list[Variant]]:
    """What is drawn, and on which split: test only where every point was reported there."""
    tested = all(p.score(LOSS, Split.TEST) is not None for p in record.points)
    split = Split.TEST if tested else Split.VALIDATION
    return split, [
        Variant(
            point=p,
            place=float(i if isinstance(p.x, str) else p.x),
            value=value,
            compared=record.from_default(p.row, LOSS) if tested else None,
        )
        for i, p in enumerate(record.points)
        if (value := p.score(LOSS, split)) is not None
    ]


def says(record: SweepRecord) -> str:
    """Which variant validation prefers and what it has where it is reported, beside the default; over tokens, at the last.

    Ablations are exploratory: intervals are drawn, and nothing is said to hold.
    """
    split, every = variants(record)
    over_tokens = _over_tokens(record)
    last = max((v.place for v in every), default=0.0)
    found = [v for v in every if not over_tokens or v.place == last]
    if not found:
        return "Nothing was scored."
    values = [v.value for v in found]
    if max(values) - min(values) < SAME:
        return f"All {len(found)} variants score the same on {split.value}: {style.score_text(values[0], LOSS)}."
    where = f" at {style.tokens_text(last)} tokens each" if over_tokens else ""
    apart = style.size_text(max(values) - min(values), LOSS)
    picked = min(found, key=lambda v: LOSS.cost(v.point.validation_loss))
    words = (
        f"Validation prefers {picked.label}{where}: {style.score_text(picked.value, LOSS)} on {split.value}, where the "
        f"{len(found)} variants lie {apart} apart."
    )
    default = next((v for v in found if v.point.row == record.default), None)
    if default is None:
        return words
    if default is picked:
        return f"{words} It is the default."
    compared = picked.compared
    interval = None if compared is None else style.interval_text(compared.low, compared.high, LOSS)
    words += f" The default, {default.label}, has {style.score_text(default.value, LOSS)}"
    words += "" if interval is None else f"; the difference has the interval {interval}"
    return f"{words} (exploratory)."


def _curve(record: SweepRecord) -> Figure:
    """A curve for each series."""
    split, found = variants(record)
    series = list(dict.fromkeys(v.point.series for v in found))
    size, title = 1.0, record.x_label if len(series) > 1 else f"{record.x_label}, {series[0]}"
    if _over_tokens(record):
        size, title = style.token_axis(round(max(v.place for v in found)))
    figure = style.figure(x=style.plain(title), y=style.unit(LOSS), height=340, showlegend=len(series) > 1)
    colours = style.colours_of(series)
    for name in series:
        line = sorted((v for v in found if v.point.series == name), key=lambda v: v.place)
        low, high = zip(*(v.bounds for v in line), strict=True)
        figure.add_scatter(
            x=[v.place / size for v in line],
            y=[v.value for v in line],
            mode="lines+markers",
            name=style.plain(name),
            line={"color": colours[name], "width": 2.2},
            marker={
                "size": [13 if v.point.row == record.default else 8 for v in line],
                "color": [style.SOUP if v.point.row == record.default else colours[name] for v in line],
            },
            error_y=style.bars(low, high, color=style.QUIET, thickness=1.6, width=5),
            **style.marks([v.point.row for v in line], [_hover(v, record, split) for v in line]),
        )
    if not _over_tokens(record):
        places, labels = [v.place for v in found], [style.plain(v.label) for v in found]
        figure.update_xaxes(tickmode="array", tickvals=places, ticktext=labels)
    return figure


def _listed(record: SweepRecord) -> Figure:
    """One line for each variant with its interval."""
    split, found = variants(record)
    found.reverse()
    figure = style.figure(x=style.unit(LOSS), y="", height=100 + 38 * len(found), showlegend=False)
    low, high = zip(*(v.bounds for v in found), strict=True)
    figure.add_scatter(
        x=[v.value for v in found],
        y=[style.plain(v.label) for v in found],
        mode="markers",
        marker={"size": 12, "color": [style.SOUP if v.point.row == record.default else style.QUIET for v in found]},
        error_x=style.bars(low, high, color=style.QUIET, thickness=1.6, width=5),
        **style.marks([v.point.row for v in found], [_hover(v, record, split) for v in found]),
    )
    least, most = min(v.value - v.bounds[0] for v in found), max(v.value + v.bounds[1] for v in found)
    if (room := LEAST - (most - least)) > 0:  # all but equal: rounding must not look like a difference
        figure.update_xaxes(range=[least - room / 2, most + room / 2])
    default = next((v for v in found if v.point.row == record.default), None)
    if default is not None:
        figure.add_vline(x=default.value, line={"dash": "dot", "width": 1.2, "color": style.SOUP})
    return figure


def _over_tokens(record: SweepRecord) -> bool:
    return _is_curve(record) and not any(isinstance(p.x, str) for p in record.points)


def _is_curve(record: SweepRecord) -> bool:
    return record.kind in SWEEPS and SWEEPS[record.kind].curve


def _hover(v: Variant, record: SweepRecord, split: Split) -> str:
    at = f" at {style.tokens_text(v.place)} tokens each" if _over_tokens(record) else ""
    words = f"<b>{style.plain(v.label)}</b>{at}<br>{split.value} <b>{style.score_text(v.value, LOSS)}</b>"
    if (c := v.compared) is not None:
        words += f"<br>{style.difference_text(c.difference, LOSS)} from the default"
        if (interval := style.interval_text(c.low, c.high, LOSS)) is not None:
            words += f"<br>interval {interval}"
    return words
