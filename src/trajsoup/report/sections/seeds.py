"""What seeds of everything say together: fork point, data and branches, all made anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trajsoup.core.signal import Signal
from trajsoup.report.cells import signed, spread
from trajsoup.report.style import score_text, signal_text
from trajsoup.report.table import Cell, Row, Table, number, tabulate, text
from trajsoup.study.records.files import Records, name_of
from trajsoup.study.records.fine_tuning import FineTuningRecord
from trajsoup.study.records.neighbours import NeighboursRecord
from trajsoup.study.records.seeds import SeedSpread, SeedsRecord
from trajsoup.study.records.sweeps import SweepRecord


def seeds_tables(records: Records) -> tuple[Table, ...]:
    """What seeds of everything say together: the main table, its comparisons, those of sweeps and fine-tuning, the grid."""
    if (seeds := records.read(SeedsRecord)) is None:
        return ()
    titles = {
        name_of(SweepRecord, name): (f"seeds-{name}", f"{sweep.title} ({sweep.paper})")
        for name, sweep in records.every(SweepRecord).items()
    }
    titles[FineTuningRecord.FILE] = ("seeds-post-training", "After fine-tuning")
    titles[NeighboursRecord.FILE] = ("seeds-trained-neighbours", "Against methods that train")
    tables = [_rows_over_seeds(seeds)] if seeds.rows else []
    tables.append(spreads_table(seeds.comparisons, name="seeds", title="Paired differences"))
    tables += [spreads_table(spreads, name=titles[of][0], title=titles[of][1]) for of, spreads in seeds.further.items()]
    return tuple(table for table in (*tables, *grid_tables(seeds)) if table.rows)


def spreads_table(spreads: Sequence[SeedSpread], *, name: str, title: str) -> Table:
    """Comparisons in each seed and over all; those registered in advance hold, are within noise, or the opposite holds."""
    seeds = tuple(dict.fromkeys(seed for s in spreads for seed in s.values))
    each: dict[str, Callable[[SeedSpread], Cell]] = {
        f"seed {seed}": lambda s, seed=seed: signed(s.values.get(seed), s.signal) for seed in seeds
    }
    return tabulate(
        name,
        f"{title}, over seeds",
        spreads,
        {
            "comparison": lambda s: text(s.label or s.name),
            "signal": lambda s: text(signal_text(s.signal)),
            **each,
            "mean": spread,
            "seeds better": lambda s: text(f"{s.better}/{len(s.values)}"),
            "left out": lambda s: number(len(s.without)),
            "error of seeds": lambda s: _size(s.seeds_error, s.signal),
            "of documents": lambda s: _size(s.documents_error, s.signal),
            "of documents in each seed": lambda s: _size(s.together_error, s.signal),
            "p, Holm": lambda s: number(s.p_holm, ".2g"),
            "verdict": lambda s: text(s.evidence.holds),
        },
        notes=[
            "Model minus reference; of a loss, negative is better. Seeds of everything: fork point, data and branches. The "
            "interval is over seeds and test documents crossed, and beside it stand the standard errors that other seeds and "
            "other documents bring. Left out: seeds that do not have these branches. Registered comparisons have a verdict, "
            "by their p value after Holm; the others are exploratory."
        ],
    )


def _size(error: float | None, signal: Signal) -> Cell:
    return number(error, lambda value: score_text(value, signal))


def grid_tables(seeds: SeedsRecord) -> tuple[Table, ...]:
    """What N branches gain on one at the same K, over seeds (fig:traj-soup-trajectory-scaling)."""
    if not seeds.grid:
        return ()
    by = {(g.n_branches, g.k): g.loss for g in seeds.grid}
    counts, ks = (sorted({cell[i] for cell in by}) for i in (0, 1))

    table = Table(
        name="seeds-grid",
        title="(N, K) grid (fig:traj-soup-trajectory-scaling), loss of N branches minus that of one, same K, over seeds",
        columns=("K", *(f"N={n}" for n in counts)),
        rows=tuple(Row(cells=(number(k), *(spread(by.get((n, k))) for n in counts))) for k in ks),
        notes=(
            "Validation split: mean over all subsets of branches, then over seeds [95 % t interval over seeds, for these "
            "documents]; exploratory.",
        ),
    )
    return (table,)


def _rows_over_seeds(record: SeedsRecord) -> Table:
    signals = tuple(dict.fromkeys(row.signal for row in record.rows))
    by = {(row.name, row.signal): row for row in record.rows}

    def cell(name: str, signal: Signal) -> Cell:
        s = by.get((name, signal))
        return text(None) if s is None else number(s.mean, lambda v: score_text(v, signal), low=s.low, high=s.high)

    titles = {Signal.LOSS: "test loss", Signal.ACCURACY: "test average"}
    return Table(
        name="seeds-main",
        title=f"Over {len(record.seeds)} seeds of everything",
        columns=("model", *(titles[signal] for signal in signals)),
        rows=tuple(
            Row(soup=name, cells=(text(label), *(cell(name, signal) for signal in signals)))
            for name, label in {row.name: row.label for row in record.rows}.items()
        ),
        notes=(
            f"Test split, seeds {', '.join(map(str, record.seeds))}; mean [95 % interval over seeds and documents crossed].",
        ),
    )
