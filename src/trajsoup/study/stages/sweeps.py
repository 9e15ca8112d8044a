"""The named comparisons of a study: entries, chosen on validation, reported on test, one record each.

    Sweep -> entries (study/sweeps) -> Chosen -> test scores of what is reported -> sweeps/<name>.json

What a study's file names is scored together with the main table (rows.py, evaluations.py), so that the checkpoints are
read once for everything; what is asked for later is scored here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajsoup.core.scores import TestScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.study.choosing.entries import Chosen, Entry, choose_entries
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.rows import ChosenOn
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord
from trajsoup.study.stages.estimates import Question, accuracy_estimate, compared, finite, loss_estimate
from trajsoup.study.stages.grid import grid_cells
from trajsoup.study.stages.rows import chosen_on
from trajsoup.study.sweeps.table import SWEEPS, Kind, Sweep
from trajsoup.study.workbench import Workbench


def sweeps_stage(bench: Workbench) -> bool:
    """Make the records of the study's sweeps."""
    return bool(make_sweeps(bench, bench.setup.sweeps))


def make_sweeps(bench: Workbench, sweeps: Sequence[Sweep]) -> list[str]:
    """Make the records that are missing or out of date; return their names."""
    if not sweeps:
        return []
    records = bench.records
    inputs = {
        sweep.name: {
            "screen": records.digest(ScreenRecord),
            "sweep": digest_of([sweep.kind, sweep.branches, sweep.merge_size]),
            "entries": digest_of([entry.name for entry in bench.entries(sweep)]),
        }
        for sweep in sweeps
    }
    missing = [s for s in sweeps if not records.stands(SweepRecord, inputs[s.name], s.name)]
    if not missing:
        return []
    chosen = choose_sweeps(bench, missing)
    tested = bench.scorer.for_sweeps.test(reported_rows(missing, chosen, rank_by=bench.setup.evaluation.rank_by))
    for sweep in missing:
        records.write(_record(bench, sweep, chosen[sweep.name], tested, inputs[sweep.name]))
    return [sweep.name for sweep in missing]


def choose_sweeps(bench: Workbench, sweeps: Sequence[Sweep]) -> dict[str, list[Chosen]]:
    """Choose every entry of every sweep on validation; what all of them ask is answered together."""
    listed: list[tuple[str, Entry]] = [(s.name, entry) for s in sweeps for entry in bench.entries(s)]
    found: dict[str, list[Chosen]] = {sweep.name: [] for sweep in sweeps}
    every = choose_entries(
        [entry for _, entry in listed], bench.scoring("sweeps"), measuring=bench.measure, descending=bench.descend
    )
    for (name, _), chosen in zip(listed, every, strict=True):
        found[name].append(chosen)
    return found


def reported_rows(sweeps: Sequence[Sweep], chosen: Mapping[str, Sequence[Chosen]], *, rank_by: Signal) -> list[Row]:
    """The rows to score on test: all, but of a sweep with cells only the one that validation prefers in each."""
    found: dict[str, Row] = {}
    for sweep in sweeps:
        cell = SWEEPS[sweep.kind].cell
        best: dict[object, Chosen] = {}
        for c in chosen[sweep.name]:
            at = c.entry.name if cell is None else cell(c)
            if at not in best or c.cost(rank_by) < best[at].cost(rank_by):
                best[at] = c
        found |= {c.row.name: c.row for c in best.values()}
    return list(found.values())


def _record(
    bench: Workbench,
    sweep: Sweep,
    chosen: Sequence[Chosen],
    tested: Mapping[str, TestScores],
    inputs: Mapping[str, str],
) -> SweepRecord:
    kind, evaluation = SWEEPS[sweep.kind], bench.setup.evaluation
    nothing = "nothing to compare: it needs two admitted branches with enough checkpoints"
    own = {row.name for row in reported_rows([sweep], {sweep.name: chosen}, rank_by=evaluation.rank_by)}
    points = tuple(
        _point(
            c,
            chosen_on(c, evaluation.rank_by),
            tested[c.row.name] if c.row.name in own else None,  # another sweep may report what this one does not
            evaluation.resamples,
        )
        for c in chosen
    )
    return SweepRecord(
        inputs=inputs,
        name=sweep.name,
        kind=kind.name,
        title=kind.title,
        paper=kind.paper,
        x_label=kind.axis,
        points=points,
        cells=grid_cells(points) if kind.name == "scaling" else (),
        comparisons=tuple(_comparisons(kind, chosen, tested, evaluation.resamples)) if chosen else (),
        notes=() if chosen else (nothing,),
        words=kind.says(chosen),
    )


def _point(chosen: Chosen, on: ChosenOn, test: TestScores | None, resamples: int) -> SweepPoint:
    entry, option, scores = chosen.entry, chosen.option, chosen.validation
    assert entry.at is not None
    return SweepPoint(
        row=entry.name,
        series=entry.at.series,
        x=entry.at.x,
        strategy=entry.strategy,
        setting=entry.setting,
        alone=entry.alone,
        shares=entry.at.shares,
        weights=dict(option.weights),
        groups=option.groups,
        k=option.k,
        n_branches=len(option.branches),
        merge_size=len(option.weights),
        horizon=option.horizon,
        budget_tokens=option.budget_tokens,
        branches=option.branches,
        chosen_on=on,
        validation_loss=None if scores.losses is None else finite(scores.losses.loss()),
        validation_accuracy=scores.overall_average,
        validation_categories=scores.category_means,
        test_loss=None if test is None else loss_estimate(test, resamples=resamples),
        test_accuracy=None if test is None else accuracy_estimate(test, resamples=resamples),
        test_categories={} if test is None else test.category_means,
    )


def _comparisons(
    kind: Kind, chosen: Sequence[Chosen], tested: Mapping[str, TestScores], resamples: int
) -> list[ComparisonRecord]:
    found: list[ComparisonRecord] = []
    for model, reference in kind.pairs(chosen):
        of = _prescribed(model, reference)
        name = f"{model.entry.name} against {reference.entry.name}{of}"
        sides = model.entry.name, reference.entry.name
        asked = Question(name=name, model=sides[0], reference=sides[1], question=name, matched=kind.matched)
        label = f"{model.entry.key} against {reference.entry.key}{of}"
        mine, theirs = tested[model.row.name], tested[reference.row.name]
        found += compared(asked, mine, theirs, label=label, resamples=resamples)
    return found


def _prescribed(*sides: Chosen) -> str:
    """Branches that nothing chose, for the name: over seeds it must stand for the same branches in each of them."""
    fixed = [side for side in sides if not {"branch", "branches"} & set(side.decision.free)]
    names = dict.fromkeys(branch for side in fixed for branch in side.option.branches)
    return f" of {'+'.join(names)}" if names else ""
