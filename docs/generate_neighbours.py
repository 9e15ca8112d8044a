"""Write docs/results-neighbours.md from the records of two studies, over those of their seeds that are finished.

python docs/generate_neighbours.py NEIGHBOURS DENSE      folders of `trajsoup demo --preset neighbours` and `--preset dense`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trajsoup.core.signal import Signal
from trajsoup.report.cells import spread, tokens
from trajsoup.report.sections import trained_neighbours
from trajsoup.report.sections.neighbours import LEVELS, neighbours_table, says
from trajsoup.report.sections.seeds import spreads_table
from trajsoup.report.style import OURS, difference_text, interval_text
from trajsoup.report.table import Table, number, tabulate, text
from trajsoup.study.file.primary import LIMITED
from trajsoup.study.records.files import Records
from trajsoup.study.records.neighbours import NeighboursRecord
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.seeds import SeedSpread
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of
from trajsoup.study.stages.seeds import further_spreads

PAGE = Path(__file__).with_name("results-neighbours.md")
LOSS = Signal.LOSS
FEW = 5  # seeds, below which the page says that they are few


def neighbours_page(folder: Path, dense: Path) -> str:
    """All methods over saved checkpoints, those that train, and a dense model for the one that needs it."""
    every = [records for records in _seeds(folder) if sweep_of(records, "methods") is not None]
    first = sweep_of(every[0], "methods")
    assert first is not None
    swept = further_spreads(every, SweepRecord, first.name)
    return "\n".join(
        [
            "# Against the neighbours, on the embedded study",
            "",
            "Printed by `make results-neighbours`. Do not edit.",
            "",
            f"{_count(every)} of the `neighbours` preset: {_sizes(every[0])} Every method has the same checkpoints, chooses "
            "on validation and is reported on test. A method that looks at the end of a branch may end it at a quarter, half "
            "or three quarters: in [this regime](regime.md) validation prefers early checkpoints, and one that ranks "
            "checkpoints can leave late ones out. Differences are from the Trajectory Soup of the same setting; one branch "
            "of T stands against the Limited soup, which has T tokens too. All are exploratory.",
            "",
            "## What won here",
            "",
            *won(first, swept, len(every)),
            "",
            *_trained_words(every),
            *([_over_seeds(first, swept).markdown()] if len(every) > 1 else []),
            *_trained(every),
            "## The first seed",
            "",
            says(first),
            "",
            neighbours_table(first).markdown(),
            "## A dense model, and Branch-Train-MiX",
            "",
            *_dense(dense),
        ]
    )


def won(first: SweepRecord, spreads: Sequence[SeedSpread], seeds: int) -> list[str]:
    """Which methods are clearly better than Trajectory Soup, and which clearly worse, over seeds or in the one there is."""
    if seeds < 2:
        return [says(first)]
    words: list[str] = []
    few = f"{seeds} seeds are few: intervals are wide, and what cannot be told apart may still differ." * (seeds < FEW)
    for budget, extended in (("T", False), ("N T", True)):
        found = [
            _Found(point=p, spread=s)
            for p in first.points
            if (p.setting is not None and p.setting.value == "extended") is extended
            and (s := _from_soup(first, p, spreads, LOSS)) is not None
        ]
        if not found:
            continue
        better = sorted((one for one in found if one.clear < 0), key=lambda one: one.spread.mean)
        worse = sum(one.clear > 0 for one in found)
        best = min(found, key=lambda one: one.spread.mean)
        named = f" ({'; '.join(map(str, better))})" if better else ""
        words.append(
            f"- At a budget of {budget}, of {len(found)} models {len(better)} have a clearly lower test loss than Trajectory "
            f"Soup{named}, {worse} a clearly higher one, and {len(found) - len(better) - worse} cannot be told from it. The "
            f"lowest mean difference, of all on test and so flattered: {best}."
        )
        second = [
            _Found(point=one.point, spread=s)
            for one in found
            if (s := _from_one(first, one.point, spreads)) is not None
        ]
        if second:
            helped, hurt = (sum(one.clear == sign for one in second) for sign in (-1, 1))
            words.append(
                f"- The second level, at {budget}: of {len(second)} methods of one trajectory, the mean over N branches is "
                f"clearly better than the best branch of T in {helped}, clearly worse in {hurt}."
            )
    return [*words, *(["", few] if few else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A model of the sweep and how far it is from Trajectory Soup."""

    point: SweepPoint
    spread: SeedSpread

    @property
    def clear(self) -> int:
        """-1 and 1: the interval lies below or above zero."""
        low, high = self.spread.low, self.spread.high
        return 0 if low is None or high is None or low <= 0 <= high else (-1 if high < 0 else 1)

    def __str__(self) -> str:
        s = self.spread
        interval = interval_text(s.low, s.high, s.signal)
        ahead = f"ahead in {s.better} of {len(s.values)} seeds"
        return f"{self.point.x} of {self.point.series}, {difference_text(s.mean, s.signal)} [{interval}], {ahead}"


def _trained_words(every: Sequence[Records]) -> list[str]:
    """What methods that train did, where they were trained."""
    found = [records for records in every if records.read(NeighboursRecord) is not None]
    if not found:
        return []
    if len(found) == 1:
        return [f"Methods that train, first seed: {trained_neighbours.says(found[0].require(NeighboursRecord))}", ""]
    spreads = {s.name: s for s in further_spreads(found, NeighboursRecord, None) if s.signal is LOSS}
    said = [
        f"{model.label} {difference_text(s.mean, LOSS)} [{interval_text(s.low, s.high, LOSS)}]"
        for model in found[0].require(NeighboursRecord).models
        if (s := spreads.get(f"{model.name} against {LIMITED}")) is not None
    ]
    return [
        f"Methods that train, from the Trajectory Soup of T tokens in all, over {len(found)} seeds: {'; '.join(said)}.",
        "",
    ]


def _trained(every: Sequence[Records]) -> list[str]:
    found = [records for records in every if records.read(NeighboursRecord) is not None]
    if not found:
        return []
    shown = trained_neighbours.section(found[0])
    assert shown is not None
    return [
        "## Methods that train",
        "",
        *([_trained_over_seeds(found).markdown()] if len(found) > 1 else []),
        "Of the first seed:",
        "",
        *(table.markdown() for table in shown.tables),
    ]


def _trained_over_seeds(every: Sequence[Records]) -> Table:
    return spreads_table(
        further_spreads(every, NeighboursRecord, None), name="seeds-trained", title="Paired differences"
    )


def _dense(folder: Path) -> list[str]:
    """Whether the mixture is worth more than the mean of its experts."""
    every = [records for records in _seeds(folder) if records.read(NeighboursRecord) is not None]
    if not every:
        return ["Not run."]
    shown = trained_neighbours.section(every[0])
    assert shown is not None
    return [
        f"{_count(every)} of the `dense` preset, since the other study's model is a mixture already: {_sizes(every[0])}",
        "",
        *([_trained_over_seeds(every).markdown()] if len(every) > 1 else []),
        "Of the first seed:",
        "",
        *(table.markdown() for table in shown.tables),
    ]


def _seeds(folder: Path) -> list[Records]:
    return list(map(Records, [folder, *sorted(folder.glob("seeds/*"))]))


def _count(every: Sequence[Records]) -> str:
    return f"{len(every)} seed{'s' * (len(every) > 1)}"


def _sizes(records: Records) -> str:
    plan = records.require(PlanRecord)
    return (
        f"{plan.total_params:,} parameters, {len(plan.branches)} branches of T = {plan.horizon:,} tokens, each seed with a "
        "fork point of its own."
    )


def _over_seeds(first: SweepRecord, spreads: Sequence[SeedSpread]) -> Table:
    points = [p for p in first.points if p.strategy == OURS or _from_soup(first, p, spreads, LOSS) is not None]
    order = {p.row: s.mean if (s := _from_soup(first, p, spreads, LOSS)) else 0.0 for p in points}
    return tabulate(
        "neighbours-seeds",
        "Over seeds: differences from Trajectory Soup [95 % interval over seeds and documents crossed]",
        sorted(points, key=lambda p: (LEVELS.index(p.setting), order[p.row])),
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
    PAGE.write_text(neighbours_page(Path(sys.argv[1]), Path(sys.argv[2])), encoding="utf-8")
