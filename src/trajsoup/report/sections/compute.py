"""Raw training, single merges and soups over compute, with their laws, and what a model costs in full.

fig:trajectory-soup-compute-allocation, app:scaling-fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from trajsoup.core.quantity import format_bytes, format_tokens
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report import style
from trajsoup.report.cells import estimate, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.table import Cell, Table, number, pairs_table, tabulate, text
from trajsoup.study.records.files import Records
from trajsoup.study.records.frontier import FittedLaw, FrontierRecord
from trajsoup.study.records.geometry import GeometryRecord
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of
from trajsoup.study.records.validation import ValidationRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

RAW = "raw"  # strategy of points that are checkpoints as they come
NEARLY = 1 + 1e-9  # rounding: the last measured compute is measured


def section(records: Records) -> Section | None:
    """One picture for each signal, on test; None where the frontier was not swept, but for what the study spent."""
    spent = spent_table(records)
    numbers = () if spent is None else (spent,)
    record, sweep = records.read(FrontierRecord), sweep_of(records, "frontier")
    if record is None or sweep is None:
        return None if spent is None else Section(numbers=numbers)
    points = {p.row: p for p in sweep.points}
    figures: list[Drawn] = []
    for signal in Signal:
        scores = {row: score for row, p in points.items() if (score := p.score(signal, Split.TEST)) is not None}
        if scores:
            figures.append(
                Drawn(
                    name=f"frontier-{signal.value}",
                    title=f"{signal.value.capitalize()} over training compute ({Split.TEST.value})",
                    says=_says(record, points, scores, signal),
                    draw=partial(_frontier, record, points, scores, signal),
                    wide=True,
                )
            )
    return Section(
        figures=tuple(figures),
        more=(costs_table(record), *_fields_table(records)),
        numbers=(frontier_table(record, sweep), *numbers),
    )


def frontier_table(record: FrontierRecord, sweep: SweepRecord) -> Table:
    """The full cost of every model that no cheaper one of its series equals."""
    points = {p.row: p for p in sweep.points}
    laws = [
        f"Law of {law.series}, {law.split.value} {law.signal.value} ({law.window}): {law_words(law)}."
        for law in record.laws
    ]
    arrows = [
        f"{_name(a.name)} ({a.signal.value}): {style.difference_text(a.gain, a.signal)}." for a in record.annotations
    ]
    return tabulate(
        "frontier",
        "The best model at each compute, with its full cost",
        [p for p in record.points if p.improving],
        {
            "series": lambda p: text(p.series),
            "branches": lambda p: text("+".join(points[p.row].branches)),
            "tokens": lambda p: tokens(p.budget_tokens),
            "N": lambda p: number(p.n_branches),
            "tokens each": lambda p: tokens(p.horizon),
            "K": lambda p: number(p.k),
            "FLOPs": lambda p: number(p.cost.training_flops, ".3g"),
            "trained to choose": lambda p: tokens(p.cost.search_tokens),
            "validation passes": lambda p: number(p.cost.validation_passes),
            "checkpoints": lambda p: _bytes(p.cost.checkpoint_bytes),
            "merge": lambda p: _bytes(p.cost.merge_read_bytes + p.cost.merge_write_bytes),
            "test loss": lambda p: estimate(points[p.row].test_loss, Signal.LOSS),
        },
        soup=lambda p: p.row,
        notes=[*laws, *arrows],
    )


def costs_table(record: FrontierRecord) -> Table:
    """What a model costs besides the compute on the axis."""
    shares = [
        f"validation adds {f'{share:.1%}' if share >= 0.001 else 'less than 0.1%'} to the FLOPs trained to choose {series}"
        for series, p in record.largest().items()
        if (share := p.cost.validation_share)
    ]
    said = f"{'; '.join(shares)}. " if shares else ""
    return tabulate(
        "cost",
        "Full cost of one model at the largest budget",
        record.largest().values(),
        {
            "model": lambda p: text(p.series),
            "training FLOPs": lambda p: number(p.cost.training_flops, ",.4g"),
            "trained to choose": lambda p: tokens(p.cost.search_tokens),
            "FLOPs to choose": lambda p: number(p.cost.search_flops, ",.4g"),
            "validation passes": lambda p: number(p.cost.validation_passes),
            "validation FLOPs": lambda p: number(p.cost.validation_flops, ",.4g"),
            "checkpoints kept": lambda p: number(p.cost.checkpoints),
            "storage": lambda p: _bytes(p.cost.checkpoint_bytes),
            "read to merge": lambda p: _bytes(p.cost.merge_read_bytes),
            "written": lambda p: _bytes(p.cost.merge_write_bytes),
        },
        notes=[
            f"{said[:1].upper()}{said[1:]}Only training FLOPs, of the branches in the model, are on the axis of the figure; "
            "the rest comes on top. Trained to choose: every branch that was compared or screened, to the furthest horizon "
            "compared; passes and checkpoints are of all of them."
        ],
    )


def spent_table(records: Records) -> Table | None:
    """What the whole study spent, ablations included."""
    if (plan := records.read(PlanRecord)) is None:
        return None
    validation = records.read(ValidationRecord)
    swept = {p.row for sweep in records.every(SweepRecord).values() for p in sweep.points}
    lines = [
        ("training tokens of all branches", f"{plan.total_tokens:,}"),
        ("training FLOPs", "not known" if plan.train_flops is None else f"{plan.train_flops:.4g}"),
        ("validation passes to rank checkpoints", f"{0 if validation is None else len(validation.checkpoints):,}"),
    ]
    lines += [("rows of W that the sweeps compare", f"{len(swept):,}")] if swept else []
    return pairs_table("spent", "Spent by the whole study", lines)


def law_words(law: FittedLaw) -> str:
    """The formula with the intervals of its parameters, or why there is none."""
    if law.asymptote is None or law.amplitude is None or law.exponent is None or law.reference is None:
        return f"none, {law.missing}"
    sign = "+" if law.signal is Signal.LOSS else "−"
    words = f"{law.asymptote:.4f} {sign} {law.amplitude:.4f} (C / {law.reference:.3g})^-{law.exponent:.3f}"
    if law.asymptote_interval is not None and law.exponent_interval is not None:
        (a, b), (c, d) = law.asymptote_interval, law.exponent_interval
        words += (
            f", {law.level:.0%} intervals of the asymptote {a:.4f} to {b:.4f} and of the exponent {c:.3f} to {d:.3f}"
        )
    words += "" if law.r_squared is None else f", R² {law.r_squared:.3f}"
    alike = law.residual_correlation
    words += "" if alike is None else f", neighbouring residuals correlated by {alike:.2f}"
    words += "" if law.aicc_gain is None else f", better than a constant by {law.aicc_gain:.1f} in AICc"
    return words + (f" ({law.warning})" if law.warning else "")


def _frontier(
    record: FrontierRecord, points: Mapping[str, SweepPoint], scores: Mapping[str, float], signal: Signal
) -> Figure:
    """Scores over cumulative training FLOPs on a logarithmic axis, with a power law for raw training and for soups."""
    what = "tokens" if record.flops_per_token is None else "FLOPs"
    figure = style.figure(x=f"training of all branches ({what})", y=style.unit(signal), height=440)
    style.beside(figure)
    figure.update_xaxes(type="log", exponentformat="power", dtick=1, minor={"dtick": "D1", "showgrid": False})
    strategies = {p.series: points[p.row].strategy for p in record.points if p.row in scores}
    known = style.strategy_colours([name for name in strategies.values() if name != RAW])
    colours = {series: known.get(strategy, style.QUIET) for series, strategy in strategies.items()}
    for law in record.laws:
        if law.signal is not signal or not law.curve:
            continue
        colour = colours.get(law.series, style.QUIET)
        bounds = [(p.x, p.low, p.high) for p in law.curve if p.low is not None and p.high is not None]
        if bounds:
            low, high = ([style.shown(b[i], signal) for b in bounds] for i in (1, 2))
            figure.add_scatter(**style.band([b[0] for b in bounds], low, high, colour))
        inside = [p for p in law.curve if p.x <= law.measured_until * NEARLY]
        outside = law.curve[len(inside) - 1 :]  # from where the other ends
        for part, dash in ((inside, "solid"), (outside, "dot")):
            if len(part) > 1:
                figure.add_scatter(
                    x=[p.x for p in part],
                    y=[style.shown(p.y, signal) for p in part],
                    mode="lines",
                    line={"color": colour, "width": 2, "dash": dash},
                    name=f"law of {style.plain(law.series)}",
                    hovertemplate=f"{style.plain(law.series)}<br>%{{x:.3g}} {what}: %{{y:.4f}}<extra></extra>",
                    showlegend=dash == "solid",
                )
    beyond = {
        (law.series, compute) for law in record.laws if law.signal is signal for compute, _ in law.beyond
    }  # of its window
    for series, colour in colours.items():
        mine = [p for p in record.points if p.series == series and p.row in scores]
        raw = strategies[series] == RAW
        figure.add_scatter(
            x=[record.compute(p) for p in mine],
            y=[style.shown(scores[p.row], signal) for p in mine],
            mode="markers",
            name=style.plain(series),
            marker={
                "color": colour,
                "size": [10 if p.improving else 7 for p in mine],
                "symbol": [
                    ("circle-open" if (series, record.compute(p)) in beyond else "circle")
                    if raw
                    else ("diamond" if p.improving else "diamond-open")
                    for p in mine
                ],
            },
            **style.marks(
                [p.row for p in mine],
                [_hover(points[p.row], f"{record.compute(p):.4g} {what}", scores[p.row], signal) for p in mine],
            ),
        )
    for a in (a for a in record.annotations if a.signal is signal):
        end = {"x": math.log10(a.soup_compute), "y": style.shown(a.soup_score, signal)}
        figure.add_annotation(
            **end,
            ax=math.log10(a.raw_compute),
            ay=style.shown(a.raw_score, signal),
            axref="x",
            ayref="y",
            arrowhead=2,
            arrowwidth=2,
            arrowcolor=style.SOUP if a.gain > 0 else style.QUIET,
            text="",
        )
        figure.add_annotation(
            **end,
            xshift=8,
            yshift=-14 if a.gain > 0 else 14,
            xanchor="left",
            showarrow=False,
            font={"size": 11},
            text=f"{style.plain(_name(a.name)).lower()} {style.difference_text(a.gain, signal)}",
        )
    return figure


def _says(record: FrontierRecord, points: Mapping[str, SweepPoint], scores: Mapping[str, float], signal: Signal) -> str:
    """What the soups add at the largest compute that raw training reached, and what the fits say."""
    raw = {record.compute(p): scores[p.row] for p in record.points if p.row in scores and points[p.row].strategy == RAW}
    soups = [(record.compute(p), p.row) for p in record.points if p.row in scores and points[p.row].n_branches > 1]
    parts: list[str] = []
    if raw and soups:
        limit = max(raw)
        matched = [row for compute, row in soups if compute <= limit * NEARLY]
        if matched:
            picked = min(matched, key=lambda row: signal.cost(points[row].score(signal, Split.VALIDATION)))
            soup = scores[picked]
            better = "better" if signal.improves(soup - raw[limit]) else "not better"
            parts.append(
                f"Within the compute of one full branch ({limit:.3g}) the soup that validates best reaches "
                f"{style.score_text(soup, signal)}, raw training {style.score_text(raw[limit], signal)}: {better}."
            )
        compute, row = max(soups)
        parts.append(
            f"With all branches spent ({compute:.3g}) the soup reaches {style.score_text(scores[row], signal)}."
        )
    for a in record.annotations:
        if a.signal is signal:
            sure = ", extrapolated" if a.raw_extrapolated or a.soup_extrapolated else ""
            parts.append(f"{_name(a.name)}: {style.difference_text(a.gain, signal)} for the soup{sure}.")
    parts += [f"Law of {law.series} ({law.window}): {law_words(law)}." for law in record.laws if law.signal is signal]
    said = (
        "Dotted lines are extrapolated, open circles lie beyond the fit's window; bands are 95%, and allow for neighbouring "
        "points that err alike."
    )
    return " ".join([*parts, said])


def _fields_table(records: Records) -> tuple[Table, ...]:
    """What the paper asks to be stated beside this figure."""
    geometry = records.read(GeometryRecord)
    fields = None if geometry is None else geometry.compute
    if fields is None:
        return ()
    lines = [
        ("merges, cheapest first", ", ".join(f"N = {n} at {format_tokens(t)}, K = {k}" for n, t, k in fields.soups)),
        *(
            (f"points that the law of {curve} is fitted to", f"{count}, {fields.fit_windows.get(curve, 'every point')}")
            for curve, count in fields.fitted_points.items()
        ),
    ]
    return (pairs_table("compute-fields", "What stands behind the points", lines),)


def _hover(point: SweepPoint, place: str, score: float, signal: Signal) -> str:
    shape = "" if point.k is None else f"<br>N = {point.n_branches}, K = {point.k}"
    return (
        f"<b>{style.plain(point.series)}</b> of {style.plain(' + '.join(point.branches))}{shape}<br>{place}<br>"
        f"{Split.TEST.value} <b>{style.score_text(score, signal)}</b><br>{style.plain(point.row)}"
    )


def _name(annotation: str) -> str:
    return annotation.replace("-", " ").capitalize()


def _bytes(size: int) -> Cell:
    return number(size, lambda value: format_bytes(round(value)))
