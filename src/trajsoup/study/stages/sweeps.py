"""The named comparisons of a study: entries, chosen on validation, reported on test, one record each.

    Sweep -> entries -> validation scores -> Chosen -> test scores of what is reported -> sweeps/<name>.json

What a study's file names is scored together with the main table (stages.py, reporting.py), so that the checkpoints are
read once for everything; what is asked for later is scored here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trajsoup.core.scores import TestScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.study.choosing.ablations import (
    allocation_entries,
    coefficient_entries,
    interpolation_entries,
    sampling_entries,
    scaling_entries,
    selection_entries,
)
from trajsoup.study.choosing.entries import Chosen, Entry, choose_entries, options_of
from trajsoup.study.choosing.field import Field
from trajsoup.study.choosing.main_table import frontier_entries, horizon_entries
from trajsoup.study.file.sweeps import Sweep, SweepKind
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.results import ComparisonRecord, ScreenRecord, SweepPoint, SweepRecord
from trajsoup.study.stages.estimates import accuracy_estimate, compared, finite, loss_estimate
from trajsoup.study.stages.grid import grid_cells
from trajsoup.study.workbench import Workbench

TITLES: Mapping[SweepKind, tuple[str, str, str]] = {  # title, label of the paper, axis
    SweepKind.HORIZONS: ("All strategies at every horizon", "fig:traj-soup-performance-curves", "token budget"),
    SweepKind.COEFFICIENTS: ("Merging coefficients", "tab:tiny-coefficient-selection-ablation", "coefficients"),
    SweepKind.SELECTIONS: ("Checkpoint selection", "tab:tiny-coefficient-selection-ablation", "selection"),
    SweepKind.ALLOCATION: ("Allocation between two branches", "fig:traj-soup-asym-allocation", "checkpoints of each"),
    SweepKind.SAMPLING: ("Dense single trajectory, sparse soup", "fig:traj-soup-sample-ablation", "tokens each"),
    SweepKind.SCALING: ("The (N, K) grid over branch subsets", "fig:traj-soup-trajectory-scaling", "merge size N K"),
    SweepKind.INTERPOLATION: ("Interpolation of two anchors", "eq:interpolation", "lambda"),
    SweepKind.FRONTIER: ("The best model at each compute", "fig:trajectory-soup-compute-allocation", "tokens of all"),
}


def sweep_entries(field: Field, sweep: Sweep) -> tuple[Entry, ...]:
    """The entries of one named comparison; none where the branches do not allow it."""
    builders: Mapping[SweepKind, Callable[[], tuple[Entry, ...]]] = {
        SweepKind.HORIZONS: lambda: horizon_entries(field),
        SweepKind.COEFFICIENTS: lambda: coefficient_entries(field, sweep),
        SweepKind.SELECTIONS: lambda: selection_entries(field, sweep),
        SweepKind.ALLOCATION: lambda: allocation_entries(field, sweep),
        SweepKind.SAMPLING: lambda: sampling_entries(field, sweep),
        SweepKind.SCALING: lambda: scaling_entries(field, sweep),
        SweepKind.INTERPOLATION: lambda: interpolation_entries(field, sweep),
        SweepKind.FRONTIER: lambda: frontier_entries(field),
    }
    return builders[sweep.kind]()


def sweeps_stage(bench: Workbench) -> bool:
    """Make the records of the study's sweeps."""
    return bool(make_sweeps(bench, bench.setup.sweeps))


def make_sweeps(bench: Workbench, sweeps: Sequence[Sweep]) -> list[str]:
    """Make the records that are missing or out of date; return their names."""
    records = bench.records
    inputs = {
        sweep.name: {
            "screen": records.digest(ScreenRecord),
            "sweep": digest_of([sweep.kind, sweep.branches, sweep.merge_size]),
        }
        for sweep in sweeps
    }
    missing = [s for s in sweeps if not records.stands(SweepRecord, inputs[s.name], s.name)]
    if not missing:
        return []
    chosen = choose_sweeps(bench, missing)
    tested = bench.scorer.test(reported_rows(chosen, rank_by=bench.setup.evaluation.rank_by))
    resamples = bench.setup.evaluation.resamples
    for sweep in missing:
        record = _record(sweep, chosen[sweep.name], tested, inputs[sweep.name], resamples)
        records.write(record)
    return [sweep.name for sweep in missing]


def choose_sweeps(bench: Workbench, sweeps: Sequence[Sweep]) -> dict[str, tuple[Chosen, ...]]:
    """Choose every entry of every sweep on validation, all options scored in one read."""
    field = bench.field()
    entries = {sweep.name: sweep_entries(field, sweep) for sweep in sweeps}
    scores = bench.scorer.validate(options_of([e for group in entries.values() for e in group]), what="sweeps")
    rank_by = bench.setup.evaluation.rank_by
    return {name: choose_entries(group, scores, rank_by=rank_by) for name, group in entries.items()}


def reported_rows(chosen: Mapping[str, Sequence[Chosen]], *, rank_by: Signal) -> list[Row]:
    """The rows to score on test: all, but of a grid over (N, K) only the subset that validation prefers in each cell."""
    found: dict[str, Row] = {}
    for group in chosen.values():
        cells: dict[tuple[object, ...], Chosen] = {}
        for c in group:
            cell = (c.entry.name,) if not _is_grid(c) else (len(c.option.branches), c.option.k)
            if cell not in cells or _score(c, rank_by) < _score(cells[cell], rank_by):
                cells[cell] = c
        found |= {c.row.name: c.row for c in cells.values()}
    return list(found.values())


def _is_grid(chosen: Chosen) -> bool:
    return chosen.entry.at is not None and chosen.entry.at.series.startswith("N=")


def _score(chosen: Chosen, rank_by: Signal) -> float:
    """Lower is better."""
    scores = chosen.validation
    value = scores.overall_average if rank_by is Signal.ACCURACY else scores.losses and scores.losses.loss()
    if value is None or finite(value) is None:
        return float("inf")
    return -value if rank_by is Signal.ACCURACY else value


def _record(
    sweep: Sweep,
    chosen: Sequence[Chosen],
    tested: Mapping[str, TestScores],
    inputs: Mapping[str, str],
    resamples: int,
) -> SweepRecord:
    title, paper, axis = TITLES[sweep.kind]
    nothing = "nothing to compare: it needs two admitted branches with enough checkpoints"
    points = tuple(_point(c, tested.get(c.row.name), resamples) for c in chosen)
    return SweepRecord(
        inputs=inputs,
        name=sweep.name,
        kind=sweep.kind,
        title=title,
        paper=paper,
        x_label=axis,
        points=points,
        cells=grid_cells(points) if sweep.kind == "scaling" else (),
        comparisons=tuple(_comparisons(sweep.kind, chosen, tested, resamples)),
        notes=() if chosen else (nothing,),
    )


def _point(chosen: Chosen, test: TestScores | None, resamples: int) -> SweepPoint:
    entry, option, scores = chosen.entry, chosen.option, chosen.validation
    assert entry.at is not None
    return SweepPoint(
        row=entry.name,
        series=entry.at.series,
        x=entry.at.x,
        strategy=entry.strategy,
        setting=entry.setting,
        alone=entry.alone,
        weights=dict(option.weights),
        k=option.k,
        n_branches=len(option.branches),
        merge_size=len(option.weights),
        horizon=option.horizon,
        budget_tokens=option.budget_tokens,
        branches=option.branches,
        chosen_on=chosen.chosen_on,
        validation_loss=None if scores.losses is None else finite(scores.losses.loss()),
        validation_accuracy=scores.overall_average,
        validation_categories=scores.category_means,
        test_loss=None if test is None else loss_estimate(test, resamples=resamples),
        test_accuracy=None if test is None else accuracy_estimate(test, resamples=resamples),
        test_categories={} if test is None else test.category_means,
    )


def _comparisons(
    kind: SweepKind, chosen: Sequence[Chosen], tested: Mapping[str, TestScores], resamples: int
) -> list[ComparisonRecord]:
    found: list[ComparisonRecord] = []
    for model, reference in _pairs(kind, chosen):
        mine, theirs = tested[model.row.name], tested[reference.row.name]
        name = f"{model.entry.name} against {reference.entry.name}"
        found += compared(
            name,
            model.entry.name,
            reference.entry.name,
            mine,
            theirs,
            name,
            "horizon",
            label=" against ".join(c.entry.name.partition("/")[2] for c in (model, reference)),
            resamples=resamples,
        )
    return found


def _pairs(kind: SweepKind, chosen: Sequence[Chosen]) -> list[tuple[Chosen, Chosen]]:
    """Tables compare every entry with the paper's default, the first; the sparse soup with both dense merges."""
    if not chosen:
        return []
    match kind:
        case SweepKind.COEFFICIENTS | SweepKind.SELECTIONS:
            return [(c, chosen[0]) for c in chosen[1:]]
        case SweepKind.SAMPLING:
            last = [c for c in chosen if c.option.horizon == chosen[-1].option.horizon]
            return [(last[-1], c) for c in last[:-1]]
        case SweepKind.INTERPOLATION | SweepKind.ALLOCATION:
            middle = chosen[len(chosen) // 2]
            return [(middle, end) for end in (chosen[0], chosen[-1]) if end is not middle]
        case SweepKind.HORIZONS:
            by = {(c.entry.name.partition("/")[2]): c for c in chosen}
            return [
                (by[name], by[f"single-merge@{at}"])
                for name in by
                if name.startswith("trajectory-soup/") and f"single-merge@{(at := name.rpartition('@')[2])}" in by
            ]
        case SweepKind.SCALING | SweepKind.FRONTIER:
            return []
