"""Angles between branches, their paths in a plane, and what weak alignment is worth (fig:direction-heatmap)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.cells import score, signed, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.sections.geometry_gains import gain_figures, of_k
from trajsoup.report.sections.geometry_paths import path_figures
from trajsoup.report.sections.geometry_plane import plane_figures
from trajsoup.report.table import Row, Table, number, pairs_table, tabulate, text
from trajsoup.report.words import counted
from trajsoup.study.records.files import Records
from trajsoup.study.records.geometry import GeometryRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS


def section(records: Records) -> Section | None:
    """What was measured of weight space, and how."""
    if (record := records.read(GeometryRecord)) is None:
        return None
    cosines = Drawn(
        name="cosines", title="Alignment of branches", says=_cosine_words(record), draw=lambda: _cosines(record)
    )
    figures = [cosines] * (len(record.branches) > 1)
    figures += [*plane_figures(record), *path_figures(records, record), *gain_figures(record)]
    return Section(figures=tuple(figures), more=_fields_table(record), numbers=tables(record))


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
    horizons = {key: format_tokens(int(key)) for key in dict.fromkeys(key for p in record.pairs for key in p.gains)}
    pairs = tabulate(
        "pairs",
        f"Pair gain on validation: nats that merging two anchors{of_k(record)} took off the mean of their losses",
        record.pairs,
        {
            "first": lambda p: text(p.first),
            "second": lambda p: text(p.second),
            "cosine": lambda p: number(p.cosine, ".4f"),
            "pair gain": lambda p: number(p.gain, "+.4f"),
            **{f"at {at}": lambda p, key=key: number(p.gains.get(key), "+.4f") for key, at in horizons.items()},
            "pair gain in points": lambda p: signed(p.accuracy_gain, Signal.ACCURACY),
            **{
                f"points at {at}": lambda p, key=key: signed(p.accuracy_gains.get(key), Signal.ACCURACY)
                for key, at in horizons.items()
                if any(p.accuracy_gains for p in record.pairs)
            },
        },
        notes=[
            "Pair gain is averaged over horizons; in points it is that of the Overall Average. The worth of a second branch, "
            "among the conditions, is another figure: the mean over all pairs at the full length, at the best K of one.",
        ],
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
            "below the mean of the ends": lambda p: number(p.gain_over_mean, "+.4f"),
            "barrier": lambda p: number(p.barrier, ".4f"),
        },
    )
    return tuple(table for table in (directions, angles, pairs, paths) if table.rows)


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
        ("pair gains averaged over", _listed(fields.gain_offsets)),
        (
            "checkpoints of an anchor",
            f"K = {fields.interpolation_k or '-'} on paths, K = {fields.gain_k or '-'} in pair gains",
        ),
    ]
    return (pairs_table("geometry-fields", "How it was measured", lines),)


def _listed(positions: Sequence[int]) -> str:
    return ", ".join(format_tokens(count) for count in positions) + " tokens" if positions else "nothing"
