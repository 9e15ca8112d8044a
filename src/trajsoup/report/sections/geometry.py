"""Angles between branches, their paths in a plane, and what weak alignment is worth.

fig:direction-heatmap, fig:interpolation and fig:direction-gain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.cells import score, signed, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.table import Row, Table, number, pairs_table, tabulate, text
from trajsoup.report.words import SAME, counted
from trajsoup.study.records.files import Records
from trajsoup.study.records.geometry import GeometryRecord, MeasuredPair, ProjectedPoint
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of
from trajsoup.study.records.validation import ValidationRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS
CERTAIN = 0.05  # p value below which a relation is told from none
LOOKS = {  # mode, dash, width, size, symbol
    "checkpoint": ("lines+markers", "dot", 1.2, 5, "circle"),
    "anchor": ("lines+markers", "solid", 2.4, 9, "diamond"),
    "path": ("lines", "dot", 1, 1, "circle"),
    "soup": ("markers", "solid", 0, 16, "star"),
    "fork point": ("markers", "solid", 0, 13, "square"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Points of the plane that belong together: a branch's checkpoints or anchors, the soups, anchors of equal tokens."""

    name: str
    kind: str
    points: Sequence[ProjectedPoint]


def section(records: Records) -> Section | None:
    """What was measured of weight space, and how."""
    if (record := records.read(GeometryRecord)) is None:
        return None
    lines = _lines(sweep_of(records, "interpolation"))
    wanted: list[tuple[bool, str, str, str, Callable[[], Figure]]] = [
        (len(record.branches) > 1, "cosines", "Alignment of branches", _cosine_words(record), lambda: _cosines(record)),
        (bool(record.plane), "plane", "Trajectories in a plane", _plane_words(record), lambda: _plane(record)),
        (
            any(len(line) > 2 for line in lines),
            "interpolation",
            "Along the line between two anchors (validation)",
            _path_words(record, lines),
            lambda: _interpolation(lines),
        ),
        (
            bool(record.paths),
            "interpolation-tokens",
            "Raw, merged and interpolated over tokens (validation)",
            _over_tokens_words(record),
            lambda: over_tokens(record, records.read(ValidationRecord)),
        ),
        *(
            (
                len(_pair_gains(record, signal)) > 1,
                name,
                f"Alignment and gain ({signal.value})",
                gain_words(record, signal),
                functools.partial(direction_gain, record, signal),
            )
            for name, signal in (("direction-gain", LOSS), ("direction-gain-accuracy", Signal.ACCURACY))
        ),
        (
            bool(record.displacements),
            "displacement",
            "Distance from the fork point",
            _displacement_words(record),
            lambda: _displacement(record),
        ),
    ]
    figures = tuple(
        Drawn(name=name, title=title, says=says, figure=draw()) for ok, name, title, says, draw in wanted if ok
    )
    return Section(figures=figures, more=_fields_table(record), numbers=tables(record))


def tables(record: GeometryRecord) -> tuple[Table, ...]:
    """Directions, angles and the gain of every pair."""
    interval = "no matched tokens" if record.interval is None else "{:,} to {:,} tokens".format(*record.interval)
    directions = tabulate(
        "directions",
        f"Leading component of the merged trajectories, {interval}, window {record.window}",
        record.directions,
        {
            "branch": lambda d: text(d.branch),
            "variance share": lambda d: number(d.variance_share, ".4f"),
            "of a random walk": lambda d: number(d.random_walk_share, ".4f"),
            "net displacement": lambda d: number(d.net_displacement, ".4f"),
            "points": lambda d: number(d.points),
        },
        notes=record.notes,
    )
    angles = Table(
        name="angles",
        title="Angles between branches, degrees",
        columns=("branch", *record.branches),
        rows=tuple(
            Row(cells=(text(name), *(number(angle, ".1f") for angle in line)))
            for name, line in zip(record.branches, record.angles, strict=True)
        ),
    )
    pairs = tabulate(
        "pairs",
        "What merging a pair gained on validation, nats below the mean of its ends",
        record.pairs,
        {
            "first": lambda p: text(p.first),
            "second": lambda p: text(p.second),
            "cosine": lambda p: number(p.cosine, ".4f"),
            "gain": lambda p: number(p.gain, "+.4f"),
            "gain in points": lambda p: signed(p.accuracy_gain, Signal.ACCURACY),
        },
        notes=["Averaged over horizons. Points of the Overall Average above the mean of its ends."],
    )
    paths = tabulate(
        "paths",
        "The line between two anchors at every horizon (validation)",
        record.paths,
        {
            "from": lambda p: text(p.first),
            "to": lambda p: text(p.second),
            "tokens each": lambda p: tokens(p.tokens),
            "K": lambda p: number(p.k),
            "loss at 0": lambda p: score(p.losses[0] if p.losses else None, LOSS),
            "loss at 1": lambda p: score(p.losses[-1] if p.losses else None, LOSS),
            "best lambda": lambda p: number(p.best_lambda, "g"),
            "loss there": lambda p: score(p.best_loss, LOSS),
            "barrier": lambda p: number(p.barrier, ".4f"),
        },
    )
    return tuple(table for table in (directions, angles, pairs, paths) if table.rows)


def _pair_gains(record: GeometryRecord, signal: Signal) -> list[tuple[MeasuredPair, float]]:
    """Every pair with its gain by one signal."""
    found = [(p, p.gain if signal is LOSS else p.accuracy_gain) for p in record.pairs]
    return [(p, gain) for p, gain in found if gain is not None]


def direction_gain(record: GeometryRecord, signal: Signal = LOSS) -> Figure:
    """The gain of merging two branches over the cosine of their directions, with the fitted line and its band."""
    figure = style.figure(x="cosine of the two directions", y=f"gain ({signal.unit})", height=380, showlegend=False)
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
            f"<b>{style.plain(p.first)} and {style.plain(p.second)}</b><br>cosine {p.cosine:.4f}<br>gain "
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
        f"{sum(gain > 0 for gain in gains)} of {counted(len(gains), 'pair gains', 'pairs gain')} by merging, from "
        f"{style.difference_text(min(gains), signal)} to {style.difference_text(max(gains), signal)}, averaged over horizons."
    )
    found = record.relation if signal is LOSS else record.accuracy_relation
    if found is None or found.pearson is None:
        return f"{words} No relation can be fitted: {'too few pairs' if found is None else found.missing}."
    sense = "larger" if found.pearson < 0 else "smaller"
    rank = "" if found.spearman is None else f"; Spearman {found.spearman:+.2f}"
    certain = (
        "." if found.pearson_p is not None and found.pearson_p < CERTAIN else ": not distinguishable from no relation."
    )
    return (
        f"{words} Weaker alignment goes with {sense} gains (Pearson {found.pearson:+.2f}, {found.p_words}{rank})"
        f"{certain} The band is 95% for the mean gain."
    )


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


def _cosines(record: GeometryRecord) -> Figure:
    """The cosine of each pair of branch directions."""
    names = [style.plain(branch) for branch in record.branches]
    figure = style.figure(x="", y="", height=130 + 52 * max(len(names), 3))
    figure.add_heatmap(
        x=names,
        y=names,
        z=record.cosines,
        zmin=-1,
        zmax=1,
        colorscale=style.DIVERGING,
        text=[["" if v is None else f"{v:.3f}" for v in line] for line in record.cosines],
        texttemplate="%{text}",
        hovertemplate="%{y} and %{x}<br>cosine <b>%{z:.4f}</b><extra></extra>",
        colorbar={"title": {"text": "cosine", "side": "right", "font": {"size": 12}}, "thickness": 12},
        xgap=2,
        ygap=2,
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(type="category", showgrid=False)
    return figure


def _cosine_words(record: GeometryRecord) -> str:
    """The range of pairwise cosines."""
    names = record.branches
    pairs = [
        (value, names[j], names[i])
        for i, line in enumerate(record.cosines)
        for j, value in enumerate(line[:i])
        if value is not None
    ]
    if not pairs:
        return "One branch has no pair: there is no angle."
    low, high = min(pairs), max(pairs)
    kind = "weakly" if high[0] < 0.5 else "strongly" if low[0] >= 0.5 else "more or less"
    return (
        f"{counted(len(pairs), 'pair', 'pairs')}: the directions overlap {kind}. Least alike: {low[1]} and {low[2]} "
        f"({low[0]:.3f}); most alike: {high[1]} and {high[2]} ({high[0]:.3f})."
    )


def _plane(record: GeometryRecord) -> Figure:
    """Checkpoints, merged points and the lines between anchors in the plane of their two leading components."""
    first, second = record.plane_variance_share
    figure = style.figure(x=f"component 1 ({first:.0%} of variance)", y=f"component 2 ({second:.0%})", height=460)
    colours = style.colours_of(record.branches)
    drawn: set[str] = set()
    for track in _tracks(record):
        mode, dash, width, size, symbol = LOOKS[track.kind]
        colour = colours.get(track.name, style.SOUP if track.kind == "soup" else style.QUIET)
        at = [p.name if p.tokens is None else f"{p.name} at {format_tokens(p.tokens)} tokens" for p in track.points]
        figure.add_scatter(
            x=[p.x for p in track.points],
            y=[p.y for p in track.points],
            mode=mode,
            name=style.plain(track.name) + (" merged" if track.kind == "anchor" else ""),
            line={"color": colour, "width": width, "dash": dash},
            marker={"size": size, "symbol": symbol, "color": colour},
            opacity=0.55 if track.kind in ("checkpoint", "path") else 1,
            legendgroup=track.name,
            showlegend=track.kind != "path" and track.name not in drawn,
            **style.marks([p.name for p in track.points], [style.plain(words) for words in at]),
        )
        drawn.add(track.name)
    figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


def _tracks(record: GeometryRecord) -> Iterable[Track]:
    for kind in ("checkpoint", "anchor"):
        for branch in record.branches:
            points = sorted(
                (p for p in record.plane if p.kind == kind and p.branch == branch), key=lambda p: p.tokens or 0
            )
            if points:
                yield Track(name=branch, kind=kind, points=points)
    anchors = sorted((p for p in record.plane if p.kind == "anchor"), key=lambda p: (p.tokens or 0, p.branch or ""))
    for at in dict.fromkeys(p.tokens for p in anchors if p.tokens is not None):
        points = [p for p in anchors if p.tokens == at]
        if len(points) > 1:
            yield Track(name=f"between anchors at {format_tokens(at)}", kind="path", points=[*points, points[0]])
    for kind in ("fork point", "soup"):
        points = [p for p in record.plane if p.kind == kind]
        if points:
            yield Track(name=kind, kind=kind, points=points)


def _plane_words(record: GeometryRecord) -> str:
    """How much of the movement the plane shows."""
    first, second = record.plane_variance_share
    return (
        f"The plane holds {first + second:.0%} of the merged points' variance ({first:.0%} and {second:.0%}); distances "
        "across it are hidden. Dotted grey lines join anchors of equal tokens: along them lie their interpolations."
    )


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


def _displacement(record: GeometryRecord) -> Figure:
    """How far each checkpoint lies from where all branches began."""
    points = sorted(
        (p for p in record.plane if p.kind == "checkpoint" and p.name in record.displacements),
        key=lambda p: p.tokens or 0,
    )
    size, title = style.token_axis(max((p.tokens or 0 for p in points), default=1))
    figure = style.figure(x=title, y="distance in weight space", height=360)
    colours = style.colours_of(record.branches)
    for branch in dict.fromkeys(p.branch for p in points if p.branch is not None):
        mine = [p for p in points if p.branch == branch]
        figure.add_scatter(
            x=[(p.tokens or 0) / size for p in mine],
            y=[record.displacements[p.name] for p in mine],
            mode="lines+markers",
            name=style.plain(branch),
            line={"color": colours.get(branch, style.QUIET), "width": 2},
            marker={"size": 4},
            **style.marks(
                [p.name for p in mine],
                [f"<b>{style.plain(p.name)}</b><br>{record.displacements[p.name]:.4g} away" for p in mine],
            ),
        )
    return figure


def _displacement_words(record: GeometryRecord) -> str:
    if not record.displacements:
        return "No distance was measured."
    far = max(record.displacements, key=lambda key: record.displacements[key])
    centre = "the fork point" if any(p.kind == "fork point" for p in record.plane) else "the mean of all checkpoints"
    return (
        f"Straight-line distance of every checkpoint from {centre}. Farthest: {far}, {record.displacements[far]:.4g}."
    )


def _fields_table(record: GeometryRecord) -> tuple[Table, ...]:
    """What the paper asks to be stated beside these figures."""
    if (fields := record.completion) is None:
        return ()
    grid = fields.interpolation_grid
    lines = [
        (
            "averaged before PCA",
            f"{fields.averaging_rule}, {counted(fields.averaging_window, 'checkpoint', 'checkpoints')}",
        ),
        ("matched tokens", "none" if fields.interval is None else "{:,} to {:,}".format(*fields.interval)),
        ("merged points in each fit", ", ".join(f"{branch} {count}" for branch, count in fields.points.items())),
        (
            "carried by the component",
            ", ".join(f"{branch} {share:.1%}" for branch, share in fields.variance_share.items()),
        ),
        (
            "carried in a random walk as long",
            ", ".join(f"{d.branch} {d.random_walk_share:.1%}" for d in record.directions),
        ),
        ("interpolation grid", f"{grid[0]:g} to {grid[-1]:g}, {len(grid)} points" if grid else "not interpolated"),
        ("interpolated at", _listed(fields.interpolation_horizons)),
        ("gains averaged over", _listed(fields.gain_offsets)),
        (
            "checkpoints of an anchor",
            f"K = {fields.interpolation_k or '-'} on paths, K = {fields.gain_k or '-'} in gains",
        ),
    ]
    return (pairs_table("geometry-fields", "How it was measured", lines),)


def _listed(positions: Sequence[int]) -> str:
    return ", ".join(format_tokens(count) for count in positions) + " tokens" if positions else "nothing"
