"""Limited minus serial over the budget, and how the merged serial run saturates: does reallocating the budget pay?

app:fixed-budget. The differences and their intervals are those of the record; left of the crossing a longer run is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report import style
from trajsoup.report.cells import difference, estimate, score, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of
from trajsoup.study.sweeps.crossing import SERIAL

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Crossed = tuple[SweepPoint, SweepPoint, ComparisonRecord]  # soup, serial run, soup minus serial run


def section(records: Records) -> Section | None:
    """Differences and saturation, for each signal that was scored."""
    sweep = sweep_of(records, "crossing")
    if sweep is None or not sweep.points:
        return None
    figures: list[Drawn] = []
    for signal in Signal:
        found = crossed(sweep, signal)
        if found:
            figures.append(
                Drawn(
                    name=f"crossing-{signal.value}",
                    title=f"Limited minus serial over the budget ({signal.value}, {Split.TEST.value})",
                    says=says(found, signal),
                    draw=partial(_differences, found, signal),
                )
            )
        lines = _lines(sweep, signal)
        if any(len(line) > 1 for line in lines.values()):
            figures.append(
                Drawn(
                    name=f"serial-{signal.value}",
                    title=f"The merged serial run over the budget ({signal.value}, {Split.TEST.value})",
                    says=_serial_words(lines.get(SERIAL, []), signal),
                    draw=partial(_levels, lines, signal),
                )
            )
    return Section(figures=tuple(figures), numbers=(crossing_table(sweep),)) if figures else None


def crossed(sweep: SweepRecord, signal: Signal) -> list[Crossed]:
    """Every soup with the serial run that it was compared with, in order of budget."""
    points = {p.row: p for p in sweep.points}
    found = [
        (points[c.model], points[c.reference], c)
        for c in sweep.comparisons
        if c.signal is signal and c.difference is not None
    ]
    return sorted(found, key=lambda one: one[0].budget_tokens)


def says(found: Sequence[Crossed], signal: Signal) -> str:
    """For each N against the free serial run: at which budgets it is ahead, behind, or inside noise."""
    words: list[str] = []
    for n in sorted({soup.n_branches for soup, _, _ in found}):
        mine = [(soup, c) for soup, serial, c in found if soup.n_branches == n and serial.series == SERIAL]
        parts = [
            f"{style.difference_text(c.difference, signal)}{_doubt(c)} at {style.tokens_text(soup.budget_tokens)}"
            for soup, c in mine
        ]
        words.append(f"{n} branches: {', '.join(parts)}.")
    better = "Below" if signal is Signal.LOSS else "Above"
    return (
        f"{' '.join(words)} {better} zero the soup of N branches of T/N tokens is better than the merged serial run of T; "
        "filled marks: the interval, over the documents of one seed, excludes zero. Solid: the serial run chooses its K "
        "freely; dashed, shown by a click on the legend: it merges as many as the soup."
    )


def _doubt(c: ComparisonRecord) -> str:
    if c.low is None or c.high is None:
        return " (too few for an interval)"
    return "" if _excludes_zero(c) else " (zero lies in its interval)"


def _excludes_zero(c: ComparisonRecord) -> bool:
    return c.low is not None and c.high is not None and (c.low > 0 or c.high < 0)


def crossing_table(sweep: SweepRecord) -> Table:
    """Every point with what validation chose, and its differences."""
    against = {(c.model, c.reference): c for c in sweep.comparisons if c.signal is Signal.LOSS}
    points = {p.row: p for p in sweep.points}

    def compared(p: SweepPoint, *, free: bool) -> ComparisonRecord | None:
        mine = (c for (model, of), c in against.items() if model == p.row and (points[of].series == SERIAL) == free)
        return next(mine, None)

    return tabulate(
        "crossing",
        f"{sweep.title} ({sweep.paper})",
        sorted(sweep.points, key=lambda p: p.budget_tokens),
        {
            "model": lambda p: text(p.series),
            "budget": lambda p: tokens(p.budget_tokens),
            "branches": lambda p: text("+".join(p.branches)),
            "tokens each": lambda p: tokens(p.horizon),
            "K": lambda p: number(p.k),
            "merged": lambda p: number(p.merge_size),
            "validation loss": lambda p: score(p.validation_loss, Signal.LOSS),
            "test loss": lambda p: estimate(p.test_loss, Signal.LOSS),
            "test average": lambda p: estimate(p.test_accuracy, Signal.ACCURACY),
            "minus serial, K free": lambda p: difference(compared(p, free=True)),
            "minus serial, as many merged": lambda p: difference(compared(p, free=False)),
        },
        soup=lambda p: p.row,
        notes=(
            *sweep.notes,
            "K is chosen on validation, among the study's K; the serial run may also merge all it has, or as many as a soup. "
            "Branches are prescribed: the baseline, and the first N that pass the screen where they stop.",
        ),
    )


def _differences(found: Sequence[Crossed], signal: Signal) -> Figure:
    """A line for each N and each way of merging the serial run, with the paired interval over documents."""
    size, title = style.token_axis(max(soup.budget_tokens for soup, _, _ in found), name="budget T of all branches")
    figure = style.figure(x=title, y=f"Limited minus serial ({signal.unit})", height=400)
    ns = sorted({soup.n_branches for soup, _, _ in found})
    colours = style.colours_of([str(n) for n in ns])
    for n in ns:
        for free in (True, False):
            mine = [(s, c) for s, serial, c in found if s.n_branches == n and (serial.series == SERIAL) == free]
            if not mine:
                continue
            values = [style.shown(c.difference or 0.0, signal) for _, c in mine]
            low, high = (
                [style.shown(c.difference or 0.0 if v is None else v, signal) for c, v in bounds]
                for bounds in ([(c, c.low) for _, c in mine], [(c, c.high) for _, c in mine])
            )
            colour = colours[str(n)]
            texts = [_hover(soup, c, signal, free=free) for soup, c in mine]
            figure.add_scatter(
                x=[soup.budget_tokens / size for soup, _ in mine],
                y=values,
                mode="lines+markers",
                visible=True if free else "legendonly",  # past saturation the serial run has to merge what it unlearned
                name=f"N = {n}" + ("" if free else ", as many merged"),
                line={"color": colour, "width": 2.4 if free else 1.4, "dash": "solid" if free else "dash"},
                marker={
                    "size": 10 if free else 7,
                    "color": colour,
                    "symbol": ["circle" if _excludes_zero(c) else "circle-open" for _, c in mine],
                },
                error_y=style.bars(
                    [v - b for v, b in zip(values, low, strict=True)],
                    [b - v for v, b in zip(values, high, strict=True)],
                    color=colour,
                    thickness=1.6 if free else 1,
                    width=4,
                ),
                **style.marks([soup.row for soup, _ in mine], texts),
            )
    figure.add_hline(y=0, line={"dash": "dot", "width": 1.5, "color": style.QUIET})
    return figure


def _lines(sweep: SweepRecord, signal: Signal) -> Mapping[str, list[SweepPoint]]:
    """The free serial run and the soups on test, in order of budget."""
    found: dict[str, list[SweepPoint]] = {}
    for p in sorted(sweep.points, key=lambda p: p.budget_tokens):
        if p.score(signal, Split.TEST) is not None and (p.series == SERIAL or p.n_branches > 1):
            found.setdefault(p.series, []).append(p)
    return found


def _levels(lines: Mapping[str, Sequence[SweepPoint]], signal: Signal) -> Figure:
    """The same models as scores: the serial run, and what N branches reach with its budget."""
    size, title = style.token_axis(
        max(p.budget_tokens for line in lines.values() for p in line), name="budget T of all branches"
    )
    figure = style.figure(x=title, y=style.unit(signal), height=400)
    colours = style.colours_of([str(n) for n in sorted({p.n_branches for line in lines.values() for p in line} - {1})])
    for series, line in lines.items():
        colour = colours.get(str(line[0].n_branches), style.QUIET)
        scores = [p.score(signal, Split.TEST) for p in line]
        figure.add_scatter(
            x=[p.budget_tokens / size for p in line],
            y=[None if value is None else style.shown(value, signal) for value in scores],
            mode="lines+markers",
            name=style.plain(series),
            line={"color": colour, "width": 2.4},
            marker={"size": 8},
            **style.marks(
                [p.row for p in line],
                [
                    f"<b>{style.plain(series)}</b>, T = {style.tokens_text(p.budget_tokens)}, K = {p.k}"
                    f"<br>{Split.TEST.value} <b>{style.score_text(value, signal)}</b>"
                    for p, value in zip(line, scores, strict=True)
                ],
            ),
        )
    return figure


def _serial_words(line: Sequence[SweepPoint], signal: Signal) -> str:
    """What the merged serial run reaches at each budget, and with which K."""
    parts = [
        f"{style.score_text(p.score(signal, Split.TEST), signal)} at {style.tokens_text(p.budget_tokens)} (K = {p.k})"
        for p in line
    ]
    return f"Serial run: {', '.join(parts)}. Only where it has levelled off can the same budget be better spent on branches."


def _hover(soup: SweepPoint, c: ComparisonRecord, signal: Signal, *, free: bool) -> str:
    against = "K free" if free else "as many merged"
    words = (
        f"<b>{style.plain(' + '.join(soup.branches))}</b>, K = {soup.k}, {style.tokens_text(soup.horizon or 0)} tokens each"
        f"<br>minus the serial run of {style.tokens_text(soup.budget_tokens)}, {against}"
        f"<br><b>{style.difference_text(c.difference, signal)}</b>"
    )
    interval = style.interval_text(c.low, c.high, signal)
    return words if interval is None else f"{words}<br>interval {interval}"
