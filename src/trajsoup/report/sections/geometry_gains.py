"""What merging two branches gained over the cosine of their directions (fig:direction-gain)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.section import Drawn
from trajsoup.report.words import counted
from trajsoup.study.records.geometry import GeometryRecord, MeasuredPair

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS
CERTAIN = 0.05  # p value below which a relation is told from none


def gain_figures(record: GeometryRecord) -> list[Drawn]:
    """One for each signal by which two pairs or more were scored."""
    return [
        Drawn(
            name=name,
            title=f"Alignment and pair gain ({signal.value})",
            says=gain_words(record, signal),
            draw=partial(direction_gain, record, signal),
        )
        for name, signal in (("direction-gain", LOSS), ("direction-gain-accuracy", Signal.ACCURACY))
        if len(_pair_gains(record, signal)) > 1
    ]


def of_k(record: GeometryRecord) -> str:
    """Of which K the merged anchors were, where the record has it."""
    k = None if record.completion is None else record.completion.gain_k
    return "" if k is None else f" of K = {k}"


def _pair_gains(record: GeometryRecord, signal: Signal) -> list[tuple[MeasuredPair, float]]:
    """Every pair with its gain by one signal."""
    found = [(p, p.gain if signal is LOSS else p.accuracy_gain) for p in record.pairs]
    return [(p, gain) for p, gain in found if gain is not None]


def direction_gain(record: GeometryRecord, signal: Signal = LOSS) -> Figure:
    """The gain of merging two branches over the cosine of their directions, with the fitted line and its band."""
    figure = style.figure(
        x="cosine of the two directions", y=f"pair gain ({signal.unit})", height=380, showlegend=False
    )
    line = record.relation_line if signal is LOSS else record.accuracy_line
    if line:
        low, high = (
            [style.shown(p.y if v is None else v, signal) for p, v in bounds]
            for bounds in ([(p, p.low) for p in line], [(p, p.high) for p in line])
        )
        figure.add_scatter(**style.band([p.x for p in line], low, high, style.SOUP))
        figure.add_scatter(
            x=[p.x for p in line],
            y=[style.shown(p.y, signal) for p in line],
            mode="lines",
            line={"color": style.SOUP, "width": 2},
            hoverinfo="skip",
        )
    drawn = _pair_gains(record, signal)
    figure.add_scatter(
        x=[p.cosine for p, _ in drawn],
        y=[style.shown(gain, signal) for _, gain in drawn],
        mode="markers",
        marker={"size": 11, "color": style.COLOURS[0]},
        text=[
            f"<b>{style.plain(p.first)} and {style.plain(p.second)}</b><br>cosine {p.cosine:.4f}<br>pair gain "
            f"{style.difference_text(gain, signal)}"
            for p, gain in drawn
        ],
        hovertemplate="%{text}<extra></extra>",
    )
    return figure


def gain_words(record: GeometryRecord, signal: Signal = LOSS) -> str:
    """Whether weaker alignment goes with larger gains here."""
    gains = [gain for _, gain in _pair_gains(record, signal)]
    if not gains:
        return "No pair was scored."
    words = (
        f"{sum(gain > 0 for gain in gains)} of {counted(len(gains), 'pair gains', 'pairs gain')} by merging anchors"
        f"{of_k(record)}, from {style.difference_text(min(gains), signal)} to {style.difference_text(max(gains), signal)}, "
        "averaged over horizons."
    )
    found = record.relation if signal is LOSS else record.accuracy_relation
    if found is None or found.pearson is None:
        return f"{words} No relation can be fitted: {'too few pairs' if found is None else found.missing}."
    sense = "larger" if found.pearson < 0 else "smaller"
    rank = "" if found.spearman is None else f"; Spearman {found.spearman:+.2f}"
    rank += "" if found.spearman is None or found.spearman_p is None else f", p = {found.spearman_p:.2g}"
    certain = (
        "." if found.pearson_p is not None and found.pearson_p < CERTAIN else ": not distinguishable from no relation."
    )
    return (
        f"{words} Weaker alignment goes with {sense} gains (Pearson {found.pearson:+.2f}, {found.p_words}{rank})"
        f"{certain} The band is 95% for the mean gain."
    )
