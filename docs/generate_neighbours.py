"""Write docs/results-neighbours.md from the records of a study whose sweeps are `[methods]`, over its seeds.

python docs/generate_neighbours.py FOLDER        (seeds that have no such sweep yet are left out, and counted)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trajsoup.core.signal import Signal
from trajsoup.report.cells import spread, tokens
from trajsoup.report.sections.neighbours import neighbours_table, says
from trajsoup.report.style import OURS, difference_text, interval_text
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.seeds import SeedSpread
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of
from trajsoup.study.stages.seeds import further_spreads

PAGE = Path(__file__).with_name("results-neighbours.md")
LOSS = Signal.LOSS


def neighbours_page(folder: Path) -> str:
    """All methods over the seeds that have been swept, and the first of them in detail."""
    every = [
        records for records in map(Records, [folder, *sorted(folder.glob("seeds/*"))]) if sweep_of(records, "methods")
    ]
    first = sweep_of(every[0], "methods")
    assert first is not None
    plan = every[0].require(PlanRecord)
    spreads = further_spreads(every, SweepRecord, first.name)
    return "\n".join(
        [
            "# Against the neighbours, on the embedded study",
            "",
            "Printed by `python docs/generate_neighbours.py FOLDER` from the records of a study with `sweeps: [methods]`. "
            "Do not edit.",
            "",
            f"{len(every)} seed{'s' * (len(every) > 1)} of the `paper` preset: {plan.total_params:,} parameters, "
            f"{len(plan.branches)} branches of T = {plan.horizon:,} tokens. Every method has the same checkpoints, chooses "
            "on validation and is reported on test. Differences are from the Trajectory Soup of the same setting; one branch "
            "of T stands against the Limited soup, which has T tokens too.",
            "",
            won(first, spreads, len(every)),
            "",
            *([_over_seeds(first, spreads).markdown()] if len(every) > 1 else []),
            "## The first seed",
            "",
            says(first),
            "",
            neighbours_table(first).markdown(),
        ]
    )


def won(first: SweepRecord, spreads: Sequence[SeedSpread], seeds: int) -> str:
    """Which methods are clearly better than Trajectory Soup, and which clearly worse, over seeds or in the one there is."""
    found = [(p, s) for p in first.points if (s := _from_soup(first, p, spreads, LOSS)) is not None]
    if seeds < 2:
        return says(first)
    better = [(p, s) for p, s in found if s.high is not None and s.high < 0]
    worse = [(p, s) for p, s in found if s.low is not None and s.low > 0]
    best = min(found, key=lambda one: one[1].mean)
    named = "; ".join(f"{p.x} of {p.series}, {_words(s)}" for p, s in sorted(better, key=lambda one: one[1].mean))
    rest = len(found) - len(better) - len(worse)
    return (
        f"Over {seeds} seeds, of {len(found)} models {len(better)} have a clearly lower test loss than Trajectory Soup"
        f"{f' ({named})' if better else ''}, {len(worse)} a clearly higher one, and {rest} cannot be "
        f"told from it. The lowest mean difference is that of {best[0].x} of {best[0].series}: {_words(best[1])}."
    )


def _words(s: SeedSpread) -> str:
    interval = interval_text(s.low, s.high, s.signal)
    return f"{difference_text(s.mean, s.signal)} [{interval}], ahead in {s.better} of {len(s.values)} seeds"


def _over_seeds(first: SweepRecord, spreads: Sequence[SeedSpread]) -> Table:
    points = [p for p in first.points if p.strategy == OURS or _from_soup(first, p, spreads, LOSS) is not None]
    order = {p.row: s.mean if (s := _from_soup(first, p, spreads, LOSS)) else 0.0 for p in points}
    return tabulate(
        "neighbours-seeds",
        "Over seeds: differences from Trajectory Soup [95 % interval over seeds and documents crossed]",
        sorted(points, key=lambda p: (p.series, order[p.row])),
        {
            "method": lambda p: text(p.x),
            "level": lambda p: text(p.series),
            "tokens": lambda p: tokens(p.trained_tokens),
            "validation passes": lambda p: number(p.chosen_on.validation_passes),
            "gradient tokens": lambda p: tokens(p.chosen_on.gradient_tokens or None),
            "loss": lambda p: spread(_from_soup(first, p, spreads, LOSS)),
            "seeds better": lambda p: text(_ahead(_from_soup(first, p, spreads, LOSS))),
            "average, points": lambda p: spread(_from_soup(first, p, spreads, Signal.ACCURACY)),
            "loss from one branch of T": lambda p: spread(_from_one(first, p, spreads)),
        },
        notes=("Passes and gradient tokens are those of the first seed.",),
        ours=lambda p: p.strategy == OURS,
    )


def _ahead(s: SeedSpread | None) -> str | None:
    return None if s is None else f"{s.better}/{len(s.values)}"


def _from_soup(
    first: SweepRecord, point: SweepPoint, spreads: Sequence[SeedSpread], signal: Signal
) -> SeedSpread | None:
    soups = {p.row for p in first.points if p.strategy == OURS}
    return _of(first, point, soups, spreads, signal)


def _from_one(first: SweepRecord, point: SweepPoint, spreads: Sequence[SeedSpread]) -> SeedSpread | None:
    alone = {p.row for p in first.points if p.setting is None and p.x == point.x}
    return _of(first, point, alone, spreads, LOSS)


def _of(
    first: SweepRecord, point: SweepPoint, references: set[str], spreads: Sequence[SeedSpread], signal: Signal
) -> SeedSpread | None:
    names = {c.name for c in first.comparisons if c.model == point.row and c.reference in references}
    return next((s for s in spreads if s.name in names and s.signal is signal), None)


if __name__ == "__main__":
    PAGE.write_text(neighbours_page(Path(sys.argv[1])), encoding="utf-8")
