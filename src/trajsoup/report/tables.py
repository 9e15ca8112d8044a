"""Tables as data, and the same tables as Markdown and CSV.

Contents -> Table (cells with how they are shown, sorted by and marked) -> the page, .md, .csv
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from trajsoup.core.frontier import FullCost
from trajsoup.core.quantity import format_bytes
from trajsoup.core.signal import Signal
from trajsoup.report import captions
from trajsoup.report import contents as c
from trajsoup.report.figures.style import bare_difference, score_text, shown, signal_text, tokens_text
from trajsoup.study.records.results import Estimate
from trajsoup.study.records.scaling import TheoryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One entry: what is read, and what it is sorted by."""

    text: str
    value: float | None = None  # None: sorted as text
    best: bool = False
    in_noise: bool = False
    share: float | None = None  # 0 the worst of its column, 1 the best: how deeply it is tinted


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line; a click shows the soup where there is one."""

    cells: tuple[Cell, ...]
    soup: str | None = None
    ours: bool = False  # a Trajectory Soup: easy to find


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the page."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""

    def numeric(self, column: int) -> bool:
        """Whether a column holds numbers, some perhaps missing."""
        cells = [row.cells[column] for row in self.rows]
        return any(c.value is not None for c in cells) and all(c.value is not None or c.text == "–" for c in cells)


def score_table(table: c.ScoreTable) -> Table:
    """Strategies by categories, best in bold, differences inside noise marked."""
    best = [table.best(i) for i in range(len(table.columns))]
    worst = [table.worst(i) for i in range(len(table.columns))]
    rows = tuple(
        Row(
            soup=row.soup,
            ours=row.group == "trajectory-soup",
            cells=(
                Cell(text=row.label),
                *(
                    Cell(
                        text=score_text(value, table.rank_by),
                        value=None if value is None else shown(value, table.rank_by),
                        best=value is not None and value == best[i] != worst[i],
                        in_noise=bool(row.in_noise) and row.in_noise[i] and value != best[i],
                        share=_share(value, worst[i], best[i]),
                    )
                    for i, value in enumerate(row.values)
                ),
            ),
        )
        for row in table.rows
    )
    return Table(
        name=table.name,
        title=f"{table.title} ({table.split})",
        columns=("model", *table.columns),
        rows=rows,
        caption=captions.score_table(table),
    )


def differences_table(rows: Sequence[c.Difference]) -> Table:
    """Every paired comparison with its interval."""
    return Table(
        name="comparisons",
        title="Paired comparisons",
        columns=("model", "minus", "signal", "difference", "low", "high", "P(better)", "count", "evidence", "matched"),
        rows=tuple(
            Row(
                soup=d.model,
                cells=(
                    Cell(text=d.label),
                    Cell(text=d.reference),
                    Cell(text=signal_text(d.rank_by)),
                    *(Cell(text=bare_difference(v, d.rank_by), value=v) for v in (d.value, d.low, d.high)),
                    Cell(text="–" if d.probability is None else f"{d.probability:.1%}", value=d.probability),
                    Cell(text=f"{d.count:,}", value=d.count),
                    Cell(text=d.evidence.value),
                    Cell(text=d.matched),
                ),
            )
            for d in rows
        ),
        caption="Model minus reference on the same test documents or items. The interval is a paired bootstrap.",
    )


def seeds_table(lines: Sequence[c.SeedLine], *, name: str = "seeds", title: str = "Over seeds") -> Table:
    """Comparisons over seeds of everything."""
    seeds = tuple(dict.fromkeys(seed for line in lines for seed in line.values))
    return Table(
        name=name,
        title=title,
        columns=("comparison", "signal", *(f"seed {seed}" for seed in seeds), "mean", "low", "high"),
        rows=tuple(
            Row(
                cells=(
                    Cell(text=line.label),
                    Cell(text=signal_text(line.rank_by)),
                    *(
                        Cell(text=bare_difference(line.values.get(seed), line.rank_by), value=line.values.get(seed))
                        for seed in seeds
                    ),
                    *(Cell(text=bare_difference(v, line.rank_by), value=v) for v in (line.mean, line.low, line.high)),
                )
            )
            for line in lines
        ),
        caption=f"{len(seeds)} seeds of everything: fork point, data and branches. The interval is a t interval of the mean.",
    )


def ablation_table(study: c.Ablation) -> Table:
    """The numbers behind an ablation's figure."""
    values = [v.value for v in study.variants]
    best, worst = (min(values), max(values)) if study.rank_by is Signal.LOSS else (max(values), min(values))
    return Table(
        name=f"ablation-{study.name}",
        title=f"{study.title} ({study.split})",
        columns=("variant", "score", "difference", "low", "high"),
        rows=tuple(
            Row(
                soup=v.soup,
                cells=(
                    Cell(text=f"{v.label} at {tokens_text(v.position or 0)}" if study.over_tokens else v.label),
                    Cell(text=score_text(v.value, study.rank_by), value=v.value, best=v.value == best != worst),
                    *(Cell(text=bare_difference(x, study.rank_by), value=x) for x in (v.difference, v.low, v.high)),
                ),
            )
            for v in study.variants
        ),
        caption=captions.ablation(study),
    )


def costs_table(costs: Sequence[tuple[str, FullCost]]) -> Table:
    """What a model costs besides the compute on the axis."""

    def bare(value: float | None) -> Cell:
        return Cell(
            text="–" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}", value=value
        )

    return Table(
        name="cost",
        title="Full cost of one model at the largest budget",
        columns=(
            "model",
            "training FLOPs",
            "validation passes",
            "validation FLOPs",
            "checkpoints kept",
            "storage",
            "read to merge",
            "written",
        ),
        rows=tuple(
            Row(
                cells=(
                    Cell(text=series),
                    bare(cost.training_flops),
                    bare(cost.validation_passes),
                    bare(cost.validation_flops),
                    bare(cost.checkpoints),
                    *(
                        Cell(text=format_bytes(value), value=value)
                        for value in (cost.checkpoint_bytes, cost.merge_read_bytes, cost.merge_write_bytes)
                    ),
                )
            )
            for series, cost in costs
        ),
        caption=captions.costs(costs),
    )


def theory_tables(record: TheoryRecord) -> tuple[Table, ...]:
    """Variance within and between branches with intervals, and how good held-out predictions were."""
    fits = Table(
        name="theory",
        title="The fit a(K) + b(K) / N",
        columns=(
            "K",
            "a(K)",
            *(f"{name}{bound}" for name in ("b(K)", "V intra", "V inter") for bound in ("", " low", " high")),
            "K eff",
            "change of bias",
        ),
        rows=tuple(
            Row(
                cells=(
                    Cell(text=str(count.k), value=count.k),
                    _number(count.limit, ".4f"),
                    *(cell for found in (count.spread, count.v_intra, count.v_inter) for cell in _bounded(found)),
                    _number(count.k_eff, ".2f"),
                    _number(count.bias_change, ".5f"),
                )
            )
            for count in record.counts
        ),
        caption=" ".join(
            (
                f"Estimated from all soups of up to {len(record.branches)} branches on {record.split.value} "
                "(eq:hierarchical); not clipped at zero. a(K) is the loss of infinitely many branches. Intervals are 95% "
                "over documents.",
                *record.words[len(record.held_out) :],
            )
        ),
    )
    held_out = Table(
        name="held-out",
        title="Held-out predictions",
        columns=("predicted", "soups", "error", "worst", "mean error", "gain of averaging", "error over gain", "R²"),
        rows=tuple(
            Row(
                cells=(
                    Cell(text=held.name),
                    Cell(text=f"{held.soups:,}", value=held.soups),
                    *(_number(v, ".2g") for v in (held.root_mean_square, held.worst, held.mean_error, held.gain)),
                    _number(held.share_of_gain, ".1%"),
                    _number(held.r_squared, ".3f"),
                )
            )
            for held in record.held_out
        ),
        caption=" ".join(
            (
                "Nats, measured minus predicted; error is the root mean square.",
                *record.words[: len(record.held_out)],
            )
        ),
    )
    return (fits, held_out) if record.held_out else (fits,)


def _bounded(found: Estimate | None) -> tuple[Cell, ...]:
    values = (None,) * 3 if found is None else (found.value, found.low, found.high)
    return tuple(_number(value, ".5f") for value in values)


def _number(value: float | None, form: str) -> Cell:
    return Cell(text="–" if value is None else f"{value:{form}}".replace("-", "−"), value=value)


def branches_table(branches: Sequence[c.Branch]) -> Table:
    """Recipes, with what differs from the baseline in bold, and what became of each branch."""
    fields = tuple(dict.fromkeys(field for b in branches for field in b.recipe))
    varied = [f for f in fields if any(f in b.changed for b in branches)]
    rows = tuple(
        Row(
            cells=(
                Cell(text=b.name),
                *(Cell(text=b.recipe.get(f, "–"), best=f in b.changed) for f in varied),
                Cell(text=_status(b)),
                Cell(text=tokens_text(b.tokens), value=b.tokens),
                Cell(text="–" if b.loss_gap is None else f"{b.loss_gap:+.2%}", value=b.loss_gap),
                Cell(text={None: "not screened", True: "admitted", False: "rejected"}[b.admitted]),
                Cell(text=b.message or b.why or "–"),
            )
        )
        for b in branches
    )
    same = [f"{f} {branches[0].recipe[f]}" for f in fields if f not in varied] if branches else []
    return Table(
        name="branches",
        title="Recipes and verdicts",
        columns=("branch", *varied, "status", "tokens", "J", "screen", "why"),
        rows=rows,
        caption="Bold differs from the baseline." + (f" The same for all: {'; '.join(same)}." if same else ""),
    )


def ingredients_table(ingredients: Sequence[c.Ingredient]) -> Table:
    """The best soup's row of W with hashes."""
    return Table(
        name="ingredients",
        title="Ingredients of the best soup",
        columns=("checkpoint", "branch", "tokens", "weight", "validation loss", "sha256"),
        rows=tuple(
            Row(
                cells=(
                    Cell(text=i.checkpoint),
                    Cell(text=i.branch or "–"),
                    Cell(text="–" if i.tokens is None else f"{i.tokens:,}", value=i.tokens),
                    Cell(text=f"{i.weight:.6g}", value=i.weight),
                    Cell(text="–" if i.score is None else f"{i.score:.4f}", value=i.score),
                    Cell(text=i.sha256 or "not recorded"),
                )
            )
            for i in ingredients
        ),
    )


def pairs_table(name: str, title: str, pairs: Sequence[tuple[str, str]]) -> Table:
    """Names and values."""
    return Table(
        name=name,
        title=title,
        columns=("name", "value"),
        rows=tuple(Row(cells=(Cell(text=a), Cell(text=b))) for a, b in pairs),
    )


def markdown(table: Table) -> str:
    """A table for a README: best in bold, inside noise with ≈."""
    lines = [f"### {_escaped(table.title)}", "", _line(table.columns)]
    lines.append("|" + "|".join("---:" if table.numeric(i) else "---" for i in range(len(table.columns))) + "|")
    lines += [_line([_marked(cell) for cell in row.cells], escape=False) for row in table.rows]
    if table.caption:
        lines += ["", _escaped(table.caption)]
    return "\n".join(lines) + "\n"


def csv_text(table: Table) -> str:
    """A table for a spreadsheet: exact values, not what is shown; a name never becomes a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_inert(name) for name in table.columns])
    for row in table.rows:
        writer.writerow([_inert(cell.text) if cell.value is None else repr(cell.value) for cell in row.cells])
    return out.getvalue()


def _share(value: float | None, worst: float | None, best: float | None) -> float | None:
    if value is None or worst is None or best is None or worst == best:
        return None
    return round((value - worst) / (best - worst), 3)


def _marked(cell: Cell) -> str:
    text = _escaped(cell.text)
    if cell.best:
        return f"**{text}**"
    return f"{text} ≈" if cell.in_noise else text


def _line(cells: Sequence[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(_escaped(cell) if escape else cell for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Markdown readers take HTML: a name stays a name."""
    for mark, safe in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "\\|"),
        ("\n", " "),
        ("[", "\\["),
        ("`", "\\`"),
    ):
        text = text.replace(mark, safe)
    return text


def _inert(text: str) -> str:
    """Spreadsheets run what starts with these marks."""
    return "'" + text if text[:1] in ("=", "+", "@", "\t", "\r") or (text[:1] == "-" and len(text) > 1) else text


def _status(branch: c.Branch) -> str:
    return f"running, {branch.share:.0%}" if branch.status == "running" else branch.status
