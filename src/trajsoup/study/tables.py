"""The tables of a study, from its records: the main table, the screen, each sweep, fine-tuning, the spread over seeds.

records -> Table -> terminal (cli), Markdown, CSV
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.quantity import format_tokens
from trajsoup.core.signal import Signal
from trajsoup.core.statistics import spread_over_seeds
from trajsoup.study.records.files import Records, name_of
from trajsoup.study.records.results import (
    ComparisonRecord,
    ComparisonsRecord,
    Estimate,
    EvaluationsRecord,
    FineTuningRecord,
    RowRecord,
    RowsRecord,
    ScreenRecord,
    ScreenVerdict,
    SeedSpread,
    SeedsRecord,
    SweepRecord,
)
from trajsoup.study.records.scaling import FittedLaw, FrontierRecord, TheoryRecord
from trajsoup.study.stages.words import verdict_over_seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text in cells: numbers are formatted with their intervals."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """For a page."""
        lines = [f"**{self.title}**", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line(row) for row in self.rows]
        return "\n".join([*lines, "", *self.notes]).rstrip() + "\n"

    def json(self) -> str:
        """For a program: one object."""
        return json.dumps(dataclasses.asdict(self))

    def csv(self) -> str:
        """For a spreadsheet."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def main_table(records: Records) -> Table:
    """tab:tiny-mid-train-main: every chosen model on the test split."""
    rows: dict[str, RowRecord] = {row.name: row for row in records.require(RowsRecord).rows}
    found: EvaluationsRecord = records.require(EvaluationsRecord)
    differences = {
        (c.model, c.signal): c for c in records.require(ComparisonsRecord).comparisons if c.reference == "single-merge"
    }
    categories = list(dict.fromkeys(c for e in found.evaluations for c in e.categories))
    has_tasks = any(e.overall_average for e in found.evaluations)
    columns = ["model", "branches", "K", "tokens each", "budget", "test loss", "against single merge"]
    lines: list[tuple[str, ...]] = []
    for e in found.evaluations:
        row = rows[e.row]
        line = [
            row.label,
            "+".join(row.branches),
            "-" if row.k is None else str(row.k),
            "-" if row.horizon is None else format_tokens(row.horizon),
            format_tokens(row.budget_tokens),
            estimate(e.loss),
            difference(differences.get((e.row, Signal.LOSS))),
        ]
        if has_tasks:
            line += [f"{100 * e.categories[c]:.1f}" if c in e.categories else "-" for c in categories]
            line.append(estimate(e.overall_average, scale=100, digits=1))
        lines.append(tuple(line))
    if has_tasks:
        columns += [*categories, "average"]
    seeds = ", ".join(str(s) for s in found.evaluations[0].seeds) or "-"
    documents = found.evaluations[0].loss.count
    note = (
        f"Test split, {documents:,} documents, seed {seeds}; [95 % bootstrap interval]. Branches, K and horizon were "
        "chosen on validation, within the same freedom for every row; p: probability of a true improvement; ~ within noise."
    )
    return Table(title="Main table", columns=tuple(columns), rows=tuple(lines), notes=(note, *found.notes))


def screen_table(records: Records) -> Table:
    """Who passed."""
    found: ScreenRecord = records.require(ScreenRecord)
    lines = [(v.branch, f"{v.loss:.4f}", f"{v.loss_gap:+.2%}", _verdict(v)) for v in found.verdicts]
    note = f"Against {found.baseline}, tolerance {found.tolerance:.1%}, on a {found.measured_on}."
    return Table(
        title="Compatibility screen", columns=("branch", "loss", "J", "verdict"), rows=tuple(lines), notes=(note,)
    )


def sweep_table(record: SweepRecord) -> Table:
    """One comparison of the paper."""
    columns = ("series", record.x_label, "K", "merged", "tokens each", "validation loss", "test loss", "test average")
    lines = [
        (
            p.series,
            f"{p.x:g}" if isinstance(p.x, int | float) else p.x,
            "-" if p.k is None else str(p.k),
            str(p.merge_size),
            "-" if p.horizon is None else format_tokens(p.horizon),
            "-" if p.validation_loss is None else f"{p.validation_loss:.4f}",
            estimate(p.test_loss),
            estimate(p.test_accuracy, scale=100, digits=1),
        )
        for p in record.points
    ]
    free = list(dict.fromkeys(name for p in record.points for name in p.chosen_on.free))
    notes = [f"Chosen on validation: {', '.join(free)}." if free else "Nothing was chosen: every row is prescribed."]
    notes = [*record.notes] or notes
    notes += [f"{c.name}: {difference(c)}" for c in record.comparisons if c.signal is Signal.LOSS]
    return Table(title=f"{record.title} ({record.paper})", columns=columns, rows=tuple(lines), notes=tuple(notes))


def fine_tuning_table(records: Records) -> Table | None:
    """tab:tiny-post-train-main and tab:exp-merge-post-train, if they were asked for."""
    found: FineTuningRecord | None = records.read(FineTuningRecord)
    if found is None:
        return None
    labels = {row.name: row.label for row in records.require(RowsRecord).rows}
    categories = list(dict.fromkeys(c for row in found.rows for c in row.categories))
    lines = [
        (
            labels[row.row],
            *(f"{100 * row.categories[c]:.1f}" if c in row.categories else "-" for c in categories),
            estimate(row.overall_average, scale=100, digits=1),
            "-" if row.deviation is None else f"{100 * row.deviation:.1f}",
            "-" if row.before is None else f"{100 * row.before:.1f}",
            estimate(row.loss),
        )
        for row in found.rows
    ]
    notes = [f"{key}: {value}." for key, value in found.settings.items()]
    notes += [
        f"{labels[c.model]} against {labels[c.reference]}, {c.signal.value}: {difference(c)}" for c in found.comparisons
    ]
    columns = ("model", *categories, "average", "deviation over seeds", "before SFT", "answer loss")
    title = "After the same fine-tuning (test items)"
    return Table(title=title, columns=columns, rows=tuple(lines), notes=tuple(notes))


def frontier_table(record: FrontierRecord, sweep: SweepRecord) -> Table:
    """The full cost of every point of the compute frontier (app:scaling-fit, sec:discussion)."""
    scores = {p.row: p for p in sweep.points}
    lines = [
        (
            p.series,
            "+".join(scores[p.row].branches),
            format_tokens(p.budget_tokens),
            "-" if p.cost.training_flops is None else f"{p.cost.training_flops:.3g}",
            f"{p.cost.validation_passes:,}",
            f"{p.cost.checkpoint_bytes / 1e6:,.1f}",
            f"{(p.cost.merge_read_bytes + p.cost.merge_write_bytes) / 1e6:,.1f}",
            estimate(scores[p.row].test_loss),
        )
        for p in record.points
        if p.improving
    ]
    columns = ("series", "branches", "tokens", "FLOPs", "validation passes", "checkpoints MB", "merge MB", "test loss")
    notes = [_law(law) for law in record.laws]
    notes += [f"{a.name} ({a.signal.value}): {a.gain:+.4f} in favour of the soup" for a in record.annotations]
    title = "The best model at each compute, with its full cost"
    return Table(title=title, columns=columns, rows=tuple(lines), notes=tuple(notes))


def theory_table(record: TheoryRecord) -> Table:
    """Predicted against measured (N, K), and what theory says in words."""
    lines = [
        (
            str(c.n_branches),
            str(c.k),
            str(c.subsets),
            f"{c.predicted:.4f}",
            f"{c.measured:.4f}",
            "yes" if c.fitted else "",
        )
        for c in record.cells
    ]
    notes = [
        f"N={b.n_branches}: the best K is {b.from_pairs} by the fit, {b.measured} as measured."
        for b in record.best
        if b.measured is not None
    ]
    if (error := record.cells_error) is not None:
        notes.append(
            f"Over {error.soups} cells that the fit has not seen: root mean square error {error.root_mean_square:.2g} nats."
        )
    columns = ("N", "K", "subsets", "predicted", "measured", "fitted")
    title = f"Predicted from one and two branches, against measured ({record.split.value} loss)"
    return Table(title=title, columns=columns, rows=tuple(lines), notes=(*notes, *record.words))


def seeds_table(record: SeedsRecord) -> Table:
    """The main table over seeds."""
    signals = list(dict.fromkeys(row.signal for row in record.rows))
    names = list(dict.fromkeys(row.name for row in record.rows))
    by = {(row.name, row.signal): row for row in record.rows}
    lines: list[tuple[str, ...]] = []
    for name in names:
        line = [by[name, signals[0]].label]
        for signal in signals:
            row = by.get((name, signal))
            scale, digits = (1.0, 4) if signal is Signal.LOSS else (100.0, 1)
            line.append("-" if row is None else _spread(row.mean, row.low, row.high, scale, digits))
        lines.append(tuple(line))
    titles = {Signal.LOSS: "test loss", Signal.ACCURACY: "test average"}
    listed = ", ".join(str(s) for s in record.seeds)
    return Table(
        title=f"Over {len(record.seeds)} seeds of everything",
        columns=("model", *(titles[s] for s in signals)),
        rows=tuple(lines),
        notes=(f"Test split, seeds {listed}; mean [95 % t interval].",),
    )


def comparisons_table(
    comparisons: Sequence[SeedSpread],
    *,
    title: str = "Paired differences",
) -> Table:
    """The orderings over seeds: holds, within noise, or the opposite."""
    lines: list[tuple[str, ...]] = []
    for c in comparisons:
        scale, digits = (1.0, 4) if c.signal is Signal.LOSS else (100.0, 2)
        wins, verdict = verdict_over_seeds(c)
        spread = _spread(c.mean, c.low, c.high, scale, digits, sign=True)
        lines.append((c.label, c.signal.value, spread, f"{wins}/{len(c.values)}", verdict))
    return Table(
        title=f"{title}, over seeds (model minus reference; loss: negative is better)",
        columns=("comparison", "signal", "mean difference", "seeds better", "verdict"),
        rows=tuple(lines),
    )


def further_comparisons(records: Records) -> list[Table]:
    """The paired differences of sweeps and fine-tuning over seeds."""
    seeds: SeedsRecord = records.require(SeedsRecord)
    titles = {FineTuningRecord.FILE: "After fine-tuning"}
    for name, sweep in records.every(SweepRecord).items():
        titles[name_of(SweepRecord, name)] = f"{sweep.title} ({sweep.paper})"
    return [comparisons_table(found, title=titles[name]) for name, found in seeds.further.items() if found]


def grid_over_seeds(every: Sequence[Records]) -> Table | None:
    """fig:traj-soup-trajectory-scaling over seeds: what N branches gain on one at the same K, over all subsets."""
    grids: list[dict[tuple[int, int], float]] = []
    for records in every:
        sweep = next((s for s in records.every(SweepRecord).values() if s.kind == "scaling"), None)
        if sweep is None:
            return None
        cells: dict[tuple[int, int], list[float]] = {}
        for p in sweep.points:
            if p.k is not None and p.validation_loss is not None:
                cells.setdefault((p.n_branches, p.k), []).append(p.validation_loss)
        grids.append({cell: math.fsum(found) / len(found) for cell, found in cells.items()})
    counts, ks = (sorted({cell[i] for grid in grids for cell in grid}) for i in (0, 1))
    return Table(
        title="(N, K) grid (fig:traj-soup-trajectory-scaling), loss of N branches minus that of one, same K, over seeds",
        columns=("K", *(f"N={n}" for n in counts[1:])),
        rows=tuple((str(k), *(_gain(grids, n, k, of=counts[0]) for n in counts[1:])) for k in ks),
        notes=("Validation split: mean over all subsets of branches, then over seeds [95 % t interval].",),
    )


def _gain(grids: Sequence[Mapping[tuple[int, int], float]], n: int, k: int, *, of: int) -> str:
    found = [grid[n, k] - grid[of, k] for grid in grids if (n, k) in grid and (of, k) in grid]
    if not found:
        return "-"
    spread = spread_over_seeds(found)
    return _spread(spread.mean, spread.low, spread.high, 1.0, 4, sign=True)


def estimate(found: Estimate | None, *, scale: float = 1.0, digits: int = 4) -> str:
    """A number with its interval."""
    if found is None or found.value is None:
        return "-"
    return _spread(found.value, found.low, found.high, scale, digits)


def difference(found: ComparisonRecord | None) -> str:
    """A paired difference, its interval and the probability that it is an improvement; ~ where it is within noise."""
    if found is None or found.difference is None:
        return ""
    scale, digits = (1.0, 4) if found.signal is Signal.LOSS else (100.0, 1)
    p = found.probability_of_improvement
    likely = "" if p is None else f" p={p:.3f}"
    mark = " ~" if found.within_noise else ""
    return _spread(found.difference, found.low, found.high, scale, digits, sign=True) + likely + mark


def _spread(
    value: float, low: float | None, high: float | None, scale: float, digits: int, *, sign: bool = False
) -> str:
    plus = "+" if sign else ""
    text = f"{scale * value:{plus}.{digits}f}"
    if low is None or high is None:
        return text
    return f"{text} [{scale * low:{plus}.{digits}f}, {scale * high:{plus}.{digits}f}]"


def _law(law: FittedLaw) -> str:
    name = f"{law.series}, test {law.signal.value}"
    if law.exponent is None or law.asymptote is None:
        return f"{name}: no law: {law.missing}"
    low_high = law.exponent_interval
    interval = "" if low_high is None else f" [{low_high[0]:.3f}, {low_high[1]:.3f}]"
    warning = "" if law.warning is None else f" ({law.warning})"
    return f"{name}: asymptote {law.asymptote:.4f}, exponent {law.exponent:.3f}{interval}, R^2 {law.r_squared:.3f}{warning}"


def _verdict(v: ScreenVerdict) -> str:
    text = "forced in" if v.forced else "admitted" if v.admitted else "rejected"
    return text + (", below the baseline: overfitting?" if v.suspiciously_low else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
