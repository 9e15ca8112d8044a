"""Which model is best, and how sure that is: the main table, post-training, paired comparisons, seeds.

tab:tiny-mid-train-main, tab:exp-merge-mid-train, tab:tiny-post-train-main.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.report import style
from trajsoup.report.cells import difference, estimate, score, signed, tokens
from trajsoup.report.section import Drawn, Section
from trajsoup.report.sections.prescribed import prescribed_tables
from trajsoup.report.sections.seeds import seeds_tables
from trajsoup.report.table import Cell, Row, Table, number, tabulate, text
from trajsoup.report.words import counted
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.comparisons import ColumnTies, ComparisonRecord, ComparisonsRecord, Evidence
from trajsoup.study.records.evaluations import Evaluation, EvaluationsRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.fine_tuning import FineTuned, FineTuningRecord
from trajsoup.study.records.rows import RowRecord, RowsRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

OVERALL = "Overall Average"


def section(records: Records) -> Section | None:
    """Tables of scores, the paired differences as pictures, and the numbers behind them."""
    if (rows := records.read(RowsRecord)) is None or records.read(EvaluationsRecord) is None:
        return None
    names = {row.name: row.label for row in rows.rows}
    answer, compared = records.read(AnswerRecord), records.read(ComparisonsRecord)
    found = () if compared is None else tuple(c for c in compared.comparisons if c.difference is not None)
    figures: list[Drawn] = []
    for signal in Signal:
        mine = [c for c in found if c.signal is signal]
        if mine and compared is not None:
            figures.append(
                Drawn(
                    name=f"differences-{signal.value}",
                    title=f"Differences in {signal.value}",
                    says=_says(mine, names),
                    draw=partial(
                        _differences, mine, names, level=compared.level, best=None if answer is None else answer.soup
                    ),
                )
            )
    tuned, fixed = fine_tuning_tables(records), prescribed_tables(records)
    numbers = [main_table(records), comparisons_table(found, names, notes=_not_made(compared))] if found else []
    return Section(
        figures=tuple(figures),
        tables=(*score_tables(records), *fixed[:1], *tuned[:1]),
        numbers=(*numbers, *fixed[1:], *tuned[1:], *seeds_tables(records)),
    )


def main_table(records: Records) -> Table:
    """Every chosen model on the test split, with what validation chose for it."""
    rows = {row.name: row for row in records.require(RowsRecord).rows}
    found = records.require(EvaluationsRecord)
    single = {
        (c.model, c.signal): c for c in records.require(ComparisonsRecord).comparisons if c.reference == "single-merge"
    }
    columns: dict[str, Callable[[Evaluation], Cell]] = {
        "model": lambda e: text(rows[e.row].label),
        "branches": lambda e: text("+".join(rows[e.row].branches)),
        "K": lambda e: number(rows[e.row].k),
        "tokens each": lambda e: tokens(rows[e.row].horizon),
        "budget": lambda e: tokens(rows[e.row].budget_tokens),
        "trained to choose": lambda e: tokens(rows[e.row].chosen_on.trained_tokens),
        "test loss": lambda e: estimate(e.loss, Signal.LOSS),
        "against single merge": lambda e: difference(single.get((e.row, Signal.LOSS))),
    }
    if any(e.overall_average for e in found.evaluations):
        for name in dict.fromkeys(name for e in found.evaluations for name in e.categories):
            columns[name] = lambda e, name=name: score(e.categories.get(name), Signal.ACCURACY)
        columns["average"] = lambda e: estimate(e.overall_average, Signal.ACCURACY)
    if any(e.answer_loss for e in found.evaluations):
        columns["answer loss"] = lambda e: estimate(e.answer_loss, Signal.LOSS)
    first = found.evaluations[0]
    return tabulate(
        "main",
        "Main table",
        found.evaluations,
        columns,
        soup=lambda e: e.row,
        ours=lambda e: rows[e.row].strategy == style.OURS,
        notes=[
            f"Test split, {first.loss.count:,} documents, seed {', '.join(map(str, first.seeds)) or '-'}; [95 % bootstrap "
            "interval]. Branches and K were chosen on validation, within the same freedom for every row.",
            *found.notes,
        ],
    )


def score_tables(records: Records) -> tuple[Table, ...]:
    """Strategies by categories of tasks, and by sources of documents: best in bold, what ties with it marked."""
    scored = {e.row: e for e in records.require(EvaluationsRecord).evaluations}
    rows = [row for row in records.require(RowsRecord).rows if row.name in scored and not row.alone]
    compared = records.read(ComparisonsRecord)
    ties = () if compared is None else compared.ties
    accuracies = {
        row.name: {**scored[row.name].categories, OVERALL: average.value}
        for row in rows
        if (average := scored[row.name].overall_average) is not None
    }
    losses = {row.name: {**scored[row.name].sources, "Overall": scored[row.name].loss.value} for row in rows}
    return tuple(
        _score_table(
            name=signal.value,
            title=f"{signal.value.capitalize()} by strategy ({scored[rows[0].name].split.value})",
            rows=rows,
            values=values,
            overall=overall,
            ties=[t for t in ties if t.signal is signal],
            signal=signal,
        )
        for signal, values, overall in (
            (Signal.ACCURACY, accuracies, OVERALL),
            (Signal.LOSS, losses, "Overall"),
        )
        if values
    )


def fine_tuning_tables(records: Records) -> tuple[Table, ...]:
    """What every row scores after the same fine-tuning, if it was asked for, and the paired comparisons of that."""
    if (found := records.read(FineTuningRecord)) is None or not found.rows:
        return ()
    tuned = {row.row: row for row in found.rows}
    rows = [row for row in records.require(RowsRecord).rows if row.name in tuned]
    table = _score_table(
        name="post-training",
        title=f"After the same fine-tuning ({found.rows[0].split.value} items)",
        rows=rows,
        values={name: {**row.categories, OVERALL: row.overall_average.value} for name, row in tuned.items()},
        overall=OVERALL,
        ties=[t for t in found.ties if t.signal is Signal.ACCURACY],
        signal=Signal.ACCURACY,
    )
    seeds = found.rows[0].by_seed if len(found.rows[0].seeds) > 1 else ()
    scores = Table(
        name=table.name,
        title=table.title,
        columns=(
            *table.columns,
            *(f"seed {seed}" for seed in seeds),
            "deviation over seeds",
            "before SFT",
            "answer loss",
            "answer loss before",
            *(("seeds souped", "answer loss souped") if seeds else ()),
        ),
        rows=tuple(
            Row(
                soup=row.soup,
                ours=row.ours,
                cells=(
                    *row.cells,
                    *(score(tuned[r.name].by_seed.get(seed), Signal.ACCURACY) for seed in seeds),
                    *(score(v, Signal.ACCURACY) for v in (tuned[r.name].deviation, tuned[r.name].before)),
                    score(tuned[r.name].loss.value, Signal.LOSS),
                    score(tuned[r.name].loss_before, Signal.LOSS),
                    *(_souped(tuned[r.name]) if seeds else ()),
                ),
            )
            for r, row in zip(rows, table.rows, strict=True)
        ),
        notes=(
            *table.notes,
            *(f"{key.capitalize()}: {value}." for key, value in found.settings.items()),
            *_rechosen(found, {row.name: row.label for row in rows}),
        ),
    )
    labels = {row.name: row.label for row in rows}
    title = "Paired comparisons after fine-tuning"
    return scores, comparisons_table(found.comparisons, labels, name="post-training-comparisons", title=title)


def _souped(row: FineTuned) -> tuple[Cell, ...]:
    """The mean of the fine-tuned weights of all seeds."""
    return estimate(row.souped, Signal.ACCURACY), estimate(row.souped_loss, Signal.LOSS)


def _rechosen(found: FineTuningRecord, labels: Mapping[str, str]) -> tuple[str, ...]:
    if found.strongest_single is None:
        return ()
    name = labels.get(found.strongest_single, found.strongest_single)
    return (f"Strongest single merge after fine-tuning, chosen anew on validation items: {name}.",)


def comparisons_table(
    rows: Sequence[ComparisonRecord],
    names: Mapping[str, str],
    *,
    name: str = "comparisons",
    title: str = "Paired comparisons",
    notes: Sequence[str] = (),
) -> Table:
    """Every paired comparison with its interval."""
    return tabulate(
        name,
        title,
        rows,
        {
            "model": lambda c: text(names.get(c.model, c.model)),
            "minus": lambda c: text(names.get(c.reference, c.reference)),
            "signal": lambda c: text(style.signal_text(c.signal)),
            "difference": lambda c: signed(c.difference, c.signal, low=c.low, high=c.high),
            "resamples better": lambda c: number(c.resamples_better, ".1%"),
            "count": lambda c: number(c.count),
            "p, Holm": lambda c: number(c.p_holm, ".2g"),
            "verdict": lambda c: text(c.evidence.holds),
            "matched": lambda c: text(c.matched),
        },
        soup=lambda c: c.model if c.model in names else None,  # fine-tuned soups are not kept
        notes=[
            "Model minus reference on the same test documents or items of one seed: the interval, a paired bootstrap, does "
            "not cover what another seed would change. Registered comparisons have a verdict, by their p value after "
            "Holm; the others are exploratory.",
            *notes,
        ],
    )


def _not_made(compared: ComparisonsRecord | None) -> list[str]:
    if compared is None:
        return []
    missing = f" Registered, but a side was not there: {'; '.join(compared.not_made)}." if compared.not_made else ""
    return [f"{compared.resamples:,} resamples.{missing}"]


def _score_table(
    *,
    name: str,
    title: str,
    rows: Sequence[RowRecord],
    values: Mapping[str, Mapping[str, float | None]],
    overall: str,
    ties: Sequence[ColumnTies],
    signal: Signal,
) -> Table:
    """Rows by columns, with the marks that the record holds: the best of a column, and what ties with it."""
    listed = [row for row in rows if row.name in values]
    columns = (*dict.fromkeys(c for row in listed for c in values[row.name] if c != overall), overall)
    marked = {overall if t.column is None else t.column: t for t in ties}
    cells = {c: _column({row.name: values[row.name].get(c) for row in listed}, marked.get(c), signal) for c in columns}
    return Table(
        name=name,
        title=title,
        columns=("model", *columns),
        rows=tuple(
            Row(
                soup=row.name,
                ours=row.strategy == style.OURS,
                cells=(text(row.label), *(cells[column][row.name] for column in columns)),
            )
            for row in listed
        ),
        notes=(_score_words(listed, cells, overall, signal),),
    )


def _column(values: Mapping[str, float | None], ties: ColumnTies | None, signal: Signal) -> dict[str, Cell]:
    """The cells of one column. What scores exactly as the best does is best too; where all are equal, none is."""
    known = [value for value in values.values() if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    best = None if ties is None or low == high else values.get(ties.best)
    tied = () if ties is None else ties.tied
    worst, first = (high, low) if signal is Signal.LOSS else (low, high)
    return {
        row: Cell(
            text=style.score_text(value, signal),
            value=None if value is None else style.shown(value, signal),
            best=value is not None and value == best,
            in_noise=row in tied and value != best,
            share=None if value is None or low == high else round((value - worst) / (first - worst), 3),
        )
        for row, value in values.items()
    }


def _score_words(
    rows: Sequence[RowRecord], cells: Mapping[str, Mapping[str, Cell]], overall: str, signal: Signal
) -> str:
    """Which row validation prefers, and what it has here: the best of a column was picked by nobody."""
    by = signal if all(row.validation_score(signal) is not None for row in rows) else Signal.LOSS
    preferred = min(rows, key=lambda row: by.cost(row.validation_score(by)))
    here = {column: found[preferred.name] for column, found in cells.items()}
    words = f"Validation prefers {preferred.label}: {here[overall].text} overall"
    told = [column for column, found in cells.items() if any(cell.best for cell in found.values())]
    if told:
        words += f", best in {sum(here[c].best for c in told)} of {counted(len(told), 'column', 'columns')}"
        words += "" if len(told) == len(cells) else " in which models differ at all"
        words += ". The best of a column is bold"
    words += "."
    if any(cell.in_noise for column in cells.values() for cell in column.values()):
        words += " ≈ marks a value whose paired difference from the best lies inside noise."
    return f"{words} {'Lower is better.' if signal is Signal.LOSS else 'In percent.'}"


def _differences(
    rows: Sequence[ComparisonRecord], names: Mapping[str, str], *, level: float, best: str | None
) -> Figure:
    """One line for each comparison of one signal; filled where there is a verdict for either side."""
    signal = rows[0].signal
    side = "nats per token; left is better" if signal is Signal.LOSS else "points; right is better"
    figure = style.figure(
        x=f"difference on {rows[0].split.value} ({side})", y="", height=100 + 66 * len(rows), showlegend=False
    )
    # names stand above their line, not beside it: a phone has no room on the left
    figure.update_yaxes(showticklabels=False, showgrid=False, range=[-0.4, len(rows) - 0.25], automargin=False)
    figure.update_layout(margin={"l": 16})
    for position, c in enumerate(reversed(rows)):
        colour = style.SOUP if c.model == best else style.QUIET
        value, low, high = (
            style.shown(c.difference or 0.0 if v is None else v, signal) for v in (c.difference, c.low, c.high)
        )
        label, reference = style.plain(names.get(c.model, c.model)), style.plain(names.get(c.reference, c.reference))
        figure.add_scatter(
            x=[value],
            y=[position],
            error_x=style.bars([value - low], [high - value], thickness=2.5, width=6, color=colour),
            mode="markers",
            marker={
                "size": 13,
                "color": colour,
                "symbol": "diamond" if c.evidence in (Evidence.STRONG, Evidence.AGAINST) else "diamond-open",
            },
            **style.marks([c.model], [_hover(c, f"<b>{label}</b> minus {reference}", level)]),
        )
        figure.add_annotation(
            x=0,
            xref="paper",
            y=position,
            yshift=24,
            align="left",
            xanchor="left",
            showarrow=False,
            text=f"<b>{label}</b><br>minus {reference}",
            font={"size": 11},
        )
    figure.add_vline(x=0, line={"dash": "dot", "width": 1.5, "color": style.QUIET})
    return figure


def _hover(c: ComparisonRecord, title: str, level: float) -> str:
    lines = [title, style.difference_text(c.difference, c.signal)]
    if (interval := style.interval_text(c.low, c.high, c.signal)) is not None:
        lines.append(f"{level:.0%} interval {interval}")
    if c.resamples_better is not None:
        lines.append(f"better in {c.resamples_better:.1%} of resamples")
    lines.append(c.evidence.holds if c.p_holm is None else f"{c.evidence.holds}, p = {c.p_holm:.2g} after Holm")
    lines.append(f"{c.count:,} {'documents' if c.signal is Signal.LOSS else 'items'}, {c.split.value}")
    return "<br>".join(lines)


def _says(rows: Sequence[ComparisonRecord], names: Mapping[str, str]) -> str:
    """What becomes of the registered comparisons, and how many are exploratory."""
    primary = [c for c in rows if c.primary]
    sure = [c for c in primary if c.evidence is Evidence.STRONG]
    worse = sum(c.evidence is Evidence.AGAINST for c in primary)
    words = (
        f"Of {counted(len(primary), 'registered comparison', 'registered comparisons')} {len(sure)} hold, the opposite of "
        f"{worse} holds, {len(primary) - len(sure) - worse} are not certain (Holm); {len(rows) - len(primary)} more are "
        "exploratory."
    )
    held = [
        f"{names.get(c.model, c.model)} over {names.get(c.reference, c.reference)}, "
        f"{style.difference_text(c.difference, c.signal)}"
        for c in sure
    ]
    words += f" What holds: {'; '.join(held)}." if held else ""
    return f"{words} Filled marks have a verdict. Over documents of one seed."
