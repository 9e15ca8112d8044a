"""The loss between two anchors, along the line and over tokens (eq:interpolation, fig:interpolation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.section import Drawn
from trajsoup.report.words import SAME, counted
from trajsoup.study.records.files import Records
from trajsoup.study.records.geometry import GeometryRecord
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of
from trajsoup.study.records.validation import ValidationRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS


def path_figures(records: Records, record: GeometryRecord) -> list[Drawn]:
    """The swept line, and the paths that were measured at every horizon; neither where it was not asked for."""
    lines = _lines(sweep_of(records, "interpolation"))
    along = Drawn(
        name="interpolation",
        title="Along the line between two anchors (validation)",
        says=_path_words(record, lines),
        draw=lambda: _interpolation(lines),
    )
    over = Drawn(
        name="interpolation-tokens",
        title="Raw, merged and interpolated over tokens (validation)",
        says=_over_tokens_words(record),
        draw=lambda: over_tokens(record, records.read(ValidationRecord)),
    )
    return [along] * any(len(line) > 2 for line in lines) + [over] * bool(record.paths)


def _lines(sweep: SweepRecord | None) -> list[list[SweepPoint]]:
    """The points of each straight line between two anchors, from the first branch to the second."""
    found: dict[tuple[str, int | None], list[SweepPoint]] = {}
    for p in () if sweep is None else sweep.points:
        if len(p.branches) == 2 and not isinstance(p.x, str) and p.validation_loss is not None:
            found.setdefault((p.series, p.horizon), []).append(p)
    return [sorted(line, key=lambda p: p.x) for line in found.values()]


def _interpolation(lines: Sequence[Sequence[SweepPoint]]) -> Figure:
    """The loss along straight lines between anchors; the dotted line joins the ends (eq:interpolation)."""
    figure = style.figure(x="share of the second branch", y="loss (nats per token)", height=380)
    for i, line in enumerate(lines):
        name = style.plain(" to ".join(line[0].branches))
        ends = (line[0], line[-1])
        figure.add_scatter(
            x=[p.x for p in ends],
            y=[p.validation_loss for p in ends],
            mode="lines",
            line={"color": style.QUIET, "dash": "dot", "width": 1.4},
            legendgroup=name,
            showlegend=False,
            hoverinfo="skip",
        )
        texts = [
            f"<b>{name}</b><br>{p.x:.0%}: validation loss <b>{style.score_text(p.validation_loss, LOSS)}</b>"
            for p in line
        ]
        figure.add_scatter(
            x=[p.x for p in line],
            y=[p.validation_loss for p in line],
            mode="lines+markers",
            name=name,
            legendgroup=name,
            line={"color": style.COLOURS[i % len(style.COLOURS)], "width": 2.2},
            marker={"size": 7},
            **style.marks([p.row for p in line], texts),
        )
    figure.update_xaxes(tickformat=".0%")
    return figure


def _path_words(record: GeometryRecord, lines: Sequence[Sequence[SweepPoint]]) -> str:
    """Where each line is lowest, and whether the ways between anchors at the matched horizons have a barrier."""
    words: list[str] = []
    for line in lines:
        low = min(line, key=lambda p: LOSS.cost(p.validation_loss))
        least, first, second = (style.score_text(p.validation_loss, LOSS) for p in (low, line[0], line[-1]))
        words.append(f"{' to '.join(low.branches)}: lowest at {low.x:.0%} ({least}; ends {first} and {second}).")
    if record.paths:
        free = sum(path.barrier <= SAME for path in record.paths)
        deepest = max(record.paths, key=lambda path: path.gain_over_better_end)
        highest = max(path.barrier for path in record.paths)
        words.append(
            f"At {counted(len(record.paths), 'matched horizon', 'matched horizons')}, {free} without a barrier above the "
            f"straight line of the ends; deepest below both at {format_tokens(deepest.tokens)} tokens and "
            f"{deepest.best_lambda:.0%}, by {style.size_text(deepest.gain_over_better_end, LOSS)}."
        )
        words += [f"The highest barrier: {style.size_text(highest, LOSS)}."] if highest > SAME else []
    return " ".join(words)


def over_tokens(record: GeometryRecord, validation: ValidationRecord | None) -> Figure:
    """fig:interpolation, left: raw checkpoints, merged anchors and the best interpolation of two branches over tokens."""
    paths = sorted(record.paths, key=lambda path: path.tokens)
    branches = (paths[0].first, paths[0].second)
    raw = {
        name: [
            c for c in (() if validation is None else validation.checkpoints) if c.branch == name and c.loss is not None
        ]
        for name in branches
    }
    longest = max([path.tokens for path in paths] + [c.tokens for line in raw.values() for c in line])
    size, title = style.token_axis(longest)
    figure = style.figure(x=title, y=style.unit(LOSS), height=380)
    colours = style.colours_of(record.branches)
    for i, name in enumerate(branches):
        line = sorted(raw.get(name, ()), key=lambda c: c.tokens)
        colour = colours.get(name, style.QUIET)
        figure.add_scatter(
            x=[c.tokens / size for c in line],
            y=[c.loss for c in line],
            mode="lines+markers",
            name=f"{style.plain(name)} raw",
            line={"color": style.faded(colour, 0.45), "width": 1.2, "dash": "dot"},
            marker={"size": 5, "color": style.faded(colour, 0.45)},
            **style.marks([c.key for c in line], [style.plain(c.key) for c in line]),
        )
        ends = [(path, path.losses[-1 if i else 0]) for path in paths if path.losses]
        figure.add_scatter(
            x=[path.tokens / size for path, _ in ends],
            y=[loss for _, loss in ends],
            mode="lines+markers",
            name=f"{style.plain(name)} merged",
            line={"color": colour, "width": 2.2},
            marker={"size": 8, "symbol": "diamond", "color": colour},
            hovertemplate=f"<b>{style.plain(name)} merged</b><br>%{{y:.4f}}<extra></extra>",
        )
    best = [path for path in paths if path.best_loss is not None]
    figure.add_scatter(
        x=[path.tokens / size for path in best],
        y=[path.best_loss for path in best],
        mode="lines+markers",
        name="best interpolation",
        line={"color": style.SOUP, "width": 2.6},
        marker={"size": 10, "symbol": "star", "color": style.SOUP},
        text=[
            f"lambda {path.best_lambda:g}, K = {path.k}<br>{style.score_text(path.best_loss, LOSS)}" for path in best
        ],
        hovertemplate="<b>best interpolation</b><br>%{text}<extra></extra>",
    )
    return figure


def _over_tokens_words(record: GeometryRecord) -> str:
    """At each horizon: the two ends, the best lambda and its loss."""
    parts = [
        f"{format_tokens(path.tokens)}: ends {style.score_text(path.losses[0], LOSS)} and "
        f"{style.score_text(path.losses[-1], LOSS)}, best {style.score_text(path.best_loss, LOSS)} at {path.best_lambda:g}"
        for path in sorted(record.paths, key=lambda path: path.tokens)
        if path.losses
    ]
    if not parts:
        return "The losses along the paths were not recorded."
    return (
        f"{record.paths[0].first} to {record.paths[0].second}, anchors of K = {record.paths[0].k}. {'; '.join(parts)}."
    )
