"""What more branches and more checkpoints bring, and what theory predicts of them.

fig:traj-soup-trajectory-scaling and eq:hierarchical.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report import style
from trajsoup.report.cells import score
from trajsoup.report.section import Drawn, Section
from trajsoup.report.sections.price import price_tables
from trajsoup.report.table import Cell, Table, number, tabulate, text
from trajsoup.report.words import counted
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import GridCell, SweepPoint, SweepRecord, sweep_of
from trajsoup.study.records.theory import TheoryRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOSS = Signal.LOSS
Soups = Mapping[tuple[frozenset[str], int | None], str]  # branches and K -> the same soup as a row of the (N, K) sweep


def section(records: Records) -> Section | None:
    """The (N, K) grid and predicted against measured soups; theory is shown with or without the sweep."""
    sweep, theory = sweep_of(records, "scaling"), records.read(TheoryRecord)
    figures, nested = list[Drawn](), _nested_figures(sweep_of(records, "prescribed-scaling"))
    if sweep is not None and sweep.cells:
        figures = [
            Drawn(
                name="surface",
                title=f"N branches by K checkpoints ({Split.VALIDATION.value})",
                says=_surface_words(sweep.cells),
                draw=partial(surface, sweep.cells),
            ),
            Drawn(
                name="merge-size",
                title=f"Merge size ({Split.VALIDATION.value})",
                says=_merge_size_words(sweep.cells),
                draw=partial(_merge_size, sweep.cells),
            ),
        ]
    if theory is None or not theory.counts:
        return Section(figures=(*figures, *nested)) if figures or nested else None
    if theory.soups:
        points = () if sweep is None else sweep.points
        rows = {(frozenset(p.branches), p.k): p.row for p in points if p.horizon == theory.horizon}
        figures.append(
            Drawn(
                name="predicted",
                title=f"Predicted against measured ({theory.split.value})",
                says=predicted_words(theory),
                draw=partial(predicted, theory, rows),
            )
        )
    return Section(
        figures=(*figures, *nested),
        more=(fits_table(theory), *((held_out_table(theory),) if theory.held_out else ()), *price_tables(theory)),
        numbers=(cells_table(theory),) if theory.cells else (),
    )


def surface(cells: tuple[GridCell, ...]) -> Figure:
    """A heat map of N branches by K checkpoints; a click on a cell shows its best soup."""
    ns, ks = sorted({c.n_branches for c in cells}), sorted({c.k for c in cells})
    by = {(c.n_branches, c.k): c for c in cells}
    grid = [[by.get((n, k)) for k in ks] for n in ns]
    figure = style.figure(x="K, checkpoints per branch", y="N, branches", height=140 + 52 * len(ns))
    figure.add_heatmap(
        x=[str(k) for k in ks],
        y=[str(n) for n in ns],
        z=[[None if c is None else c.loss for c in line] for line in grid],
        text=[["" if c is None else _starred(c) for c in line] for line in grid],
        texttemplate="%{text}",
        textfont={"size": 12},
        customdata=[[[None, "not merged"] if c is None else [c.row, _hover(c)] for c in line] for line in grid],
        hovertemplate="%{customdata[1]}<extra></extra>",
        colorscale=style.SEQUENTIAL,
        reversescale=True,  # a low loss is dark
        colorbar={"title": {"text": style.unit(LOSS), "side": "right", "font": {"size": 12}}, "thickness": 12},
        xgap=2,
        ygap=2,
    )
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    return figure


def predicted(theory: TheoryRecord, rows: Soups) -> Figure:
    """What soups of one and two branches promise for every larger soup against what it measured."""
    figure = style.figure(x=f"predicted {style.unit(LOSS)}", y=f"measured {style.unit(LOSS)}", height=380)
    values = [value for soup in theory.soups for value in (soup.predicted, soup.measured)]
    ends = [min(values), max(values)]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={"dash": "dot", "color": style.QUIET}, name="agreement", hoverinfo="skip"
    )
    colours = style.colours_of([str(n) for n in sorted({c.n_branches for c in theory.cells})])
    for n in sorted({len(soup.branches) for soup in theory.soups}):
        mine = [soup for soup in theory.soups if len(soup.branches) == n]
        figure.add_scatter(
            x=[soup.predicted for soup in mine],
            y=[soup.measured for soup in mine],
            mode="markers",
            name=f"N = {n}",
            marker={"size": 9, "color": colours[str(n)]},
            **style.marks(
                [rows.get((frozenset(soup.branches), soup.k)) for soup in mine],
                [
                    f"<b>{style.plain(' + '.join(soup.branches))}</b>, K = {soup.k}"
                    f"<br>predicted {style.score_text(soup.predicted, LOSS)}"
                    f"<br>measured <b>{style.score_text(soup.measured, LOSS)}</b>"
                    for soup in mine
                ],
            ),
        )
    return figure


def predicted_words(theory: TheoryRecord) -> str:
    """How far the quadratic model holds; larger soups are the first of what was held out."""
    if not theory.held_out:
        return "Nothing was left to predict: it takes soups of three branches."
    found = theory.held_out[0]
    error = style.difference_text(found.mean_error, LOSS)
    words = (
        f"Soups of three branches and more, predicted from one and two: mean error {error} over "
        f"{counted(found.soups, 'soup', 'soups')}, worst {found.worst:.4f}."
    )
    if abs(found.mean_error) > max(0.5 * found.worst, 0.01 * found.gain):
        much = "much" if found.mean_error > 0 else "little"
        words += f" The errors lean to one side: the quadratic model promises too {much}."
    best = [b for b in theory.best if b.measured is not None]
    if best:
        ns, promised, measured = (
            ", ".join(map(str, column))
            for column in zip(*((b.n_branches, b.from_pairs, b.measured) for b in best), strict=True)
        )
        words += f" Best K for N = {ns}: predicted {promised}, measured {measured}."
    return words


def fits_table(theory: TheoryRecord) -> Table:
    """Variance within and between branches with intervals."""
    return tabulate(
        "theory",
        "The fit a(K) + b(K) / N",
        theory.counts,
        {
            "K": lambda c: number(c.k),
            "a(K)": lambda c: number(c.limit, ".4f"),
            "b(K)": lambda c: _bounded(c.spread),
            "V intra": lambda c: _bounded(c.v_intra),
            "V inter": lambda c: _bounded(c.v_inter),
            "change of bias": lambda c: number(c.bias_change, ".5f"),
        },
        notes=[
            f"Estimated from all soups of up to {len(theory.branches)} branches on {theory.split.value} (eq:hierarchical); "
            "not clipped at zero. a(K) is the loss of infinitely many branches. Intervals are 95%, a "
            "jackknife over branches: what other branches of the same kind would give.",
            *theory.words,
        ],
    )


def held_out_table(theory: TheoryRecord) -> Table:
    """How good predictions were of soups that they had not seen."""
    return tabulate(
        "held-out",
        "Held-out predictions",
        theory.held_out,
        {
            "predicted": lambda held: text(held.name),
            "soups": lambda held: number(held.soups),
            "error": lambda held: number(held.root_mean_square, ".2g"),
            "worst": lambda held: number(held.worst, ".2g"),
            "mean error": lambda held: number(held.mean_error, ".2g"),
            "taken off by averaging": lambda held: number(held.gain, ".2g"),
            "error over that": lambda held: number(held.share_of_gain, ".1%"),
            "R²": lambda held: number(held.r_squared, ".3f"),
        },
        notes=["Nats, measured minus predicted; error is the root mean square.", *theory.held_out_words],
    )


def cells_table(theory: TheoryRecord) -> Table:
    """Predicted against measured (N, K)."""
    notes = [
        f"N={b.n_branches}: the best K is {b.from_pairs} by the fit, {b.measured} as measured."
        for b in theory.best
        if b.measured is not None
    ]
    if (error := theory.cells_error) is not None:
        notes.append(
            f"Over {error.soups} cells that the fit has not seen: root mean square error {error.root_mean_square:.2g} nats."
        )
    return tabulate(
        "predicted-cells",
        f"Predicted from one and two branches, against measured ({theory.split.value} loss)",
        theory.cells,
        {
            "N": lambda c: number(c.n_branches),
            "K": lambda c: number(c.k),
            "subsets": lambda c: number(c.subsets),
            "predicted": lambda c: score(c.predicted, LOSS),
            "measured": lambda c: score(c.measured, LOSS),
            "fitted": lambda c: text("yes" if c.fitted else "no"),
        },
        notes=notes,
    )


def _surface_words(cells: tuple[GridCell, ...]) -> str:
    """Where the best cell lies, and whether K falls with N."""
    best = next(c for c in cells if c.best)
    words = (
        f"Best on {Split.VALIDATION.value}: N = {best.n_branches}, K = {best.k} ({style.score_text(best.loss, LOSS)}), out "
        f"of {len(cells)} cells."
    )
    first = [c for c in cells if c.best_of_n]
    if len(first) > 1:
        ks, ns = ", ".join(str(c.k) for c in first), ", ".join(str(c.n_branches) for c in first)
        words += f" The best K is {ks} for N = {ns}."
    if any(c.subsets > 1 for c in cells):
        words += " A cell is the mean over all subsets of N branches; a click shows the best of them."
    return words


def _merge_size(cells: tuple[GridCell, ...]) -> Figure:
    """The same soups over M = N K, one curve for each N."""
    figure = style.figure(x="M = N K, checkpoints in the soup", y=style.unit(LOSS))
    ns = sorted({c.n_branches for c in cells})
    colours = style.colours_of([str(n) for n in ns])
    for n in ns:
        mine = sorted((c for c in cells if c.n_branches == n), key=lambda c: c.merge_size)
        figure.add_scatter(
            x=[c.merge_size for c in mine],
            y=[c.loss for c in mine],
            mode="lines+markers",
            name=f"N = {n}",
            line={"color": colours[str(n)], "width": 2.2},
            marker={"size": 7},
            **style.marks([c.row for c in mine], [_hover(c) for c in mine]),
        )
    return figure


def _merge_size_words(cells: tuple[GridCell, ...]) -> str:
    """What more branches bring at one merge size, and the best of each N."""
    first = [c for c in cells if c.best_of_n]
    if len(first) < 2:
        return "One branch only: more branches cannot be compared with more checkpoints."
    sizes: dict[int, dict[int, float]] = {}
    for c in cells:
        sizes.setdefault(c.merge_size, {})[c.n_branches] = c.loss
    shared = [found for found in sizes.values() if len(found) > 1]
    wins = sum(found[max(found)] < found[min(found)] for found in shared)
    words = (
        f"At equal merge size the soup of more branches is better in {wins} of {len(shared)} cases. " if shared else ""
    )
    return (
        f"{words}Best of each N: {', '.join(f'N = {c.n_branches}: {style.score_text(c.loss, LOSS)}' for c in first)}."
    )


def _nested_figures(sweep: SweepRecord | None) -> list[Drawn]:
    """The prescribed scaling, for each signal that was scored."""
    found: list[Drawn] = []
    for signal in Signal:
        points = [] if sweep is None else [p for p in sweep.points if p.score(signal, Split.VALIDATION) is not None]
        if points:
            found.append(
                Drawn(
                    name=f"nested-{signal.value}",
                    title=f"Branches in their order over the merge size ({signal.value}, {Split.VALIDATION.value})",
                    says=_nested_words(points, signal),
                    draw=partial(_nested, points, signal),
                )
            )
    return found


def _nested(points: Sequence[SweepPoint], signal: Signal) -> Figure:
    """Soups of the first N branches over M = N K, a curve for each N; a star where test was scored."""
    figure = style.figure(x="M = N K, checkpoints in the soup", y=style.unit(signal))
    ns = sorted({p.n_branches for p in points})
    colours = style.colours_of([str(n) for n in ns])
    for n in ns:
        mine = [(p, p.score(signal, Split.VALIDATION) or 0.0) for p in points if p.n_branches == n]
        mine.sort(key=lambda one: one[0].merge_size)
        figure.add_scatter(
            x=[p.merge_size for p, _ in mine],
            y=[style.shown(value, signal) for _, value in mine],
            mode="lines+markers",
            name=f"N = {n}",
            line={"color": colours[str(n)], "width": 2.2},
            marker={
                "size": [13 if p.test_loss is not None else 7 for p, _ in mine],
                "symbol": ["star" if p.test_loss is not None else "circle" for p, _ in mine],
            },
            **style.marks(
                [p.row for p, _ in mine],
                [
                    f"<b>{style.plain(' + '.join(p.branches))}</b>, K = {p.k}, M = {p.merge_size}"
                    f"<br>{Split.VALIDATION.value} <b>{style.score_text(value, signal)}</b>"
                    for p, value in mine
                ],
            ),
        )
    return figure


def _nested_words(points: Sequence[SweepPoint], signal: Signal) -> str:
    """Where each N validates best, and what that soup scores on test."""
    words: list[str] = []
    for n in sorted({p.n_branches for p in points}):
        mine = [p for p in points if p.n_branches == n]
        top = min(mine, key=lambda p: signal.cost(p.score(signal, Split.VALIDATION)))
        words.append(f"N = {n}: {top.merge_size} (K = {top.k})")
    tested = [p for p in points if p.score(signal, Split.TEST) is not None]
    said = [f"N = {p.n_branches} {style.score_text(p.score(signal, Split.TEST), signal)}" for p in tested]
    test = f" Stars, the K that validation prefers, on test: {', '.join(said)}." if said else ""
    return f"Best merge size of the first N branches: {', '.join(words)}.{test} Nothing but K differs along a curve."


def _hover(c: GridCell) -> str:
    return f"N = {c.n_branches}, K = {c.k}, M = {c.merge_size}<br><b>{style.score_text(c.loss, LOSS)}</b>"


def _starred(c: GridCell) -> str:
    return f"★<br><b>{style.score_text(c.loss, LOSS)}</b>" if c.best else style.score_text(c.loss, LOSS)


def _bounded(found: Estimate | None) -> Cell:
    return text(None) if found is None else number(found.value, ".5f", low=found.low, high=found.high)
