"""The spread over seeds: the main table and all comparisons, collected from the records of every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.core.statistics import spread_over_seeds
from trajsoup.study.file.study import Setup, with_seed
from trajsoup.study.records.files import Records, name_of
from trajsoup.study.records.results import (
    ComparisonRecord,
    ComparisonsRecord,
    EvaluationsRecord,
    FineTuningRecord,
    GridGain,
    RowsRecord,
    SeedSpread,
    SeedsRecord,
    SweepRecord,
    sweep_of,
)
from trajsoup.study.stages.grid import grid_gains
from trajsoup.study.stages.words import over_seeds

Compared = ComparisonsRecord | SweepRecord | FineTuningRecord


def seeds_stage(records: Records, setup: Setup) -> bool:
    """Collect main table and comparisons over the seeds; the records of the first are the study's own."""
    inputs = seeds_inputs(setup)

    def make() -> SeedsRecord:
        seeds = range(setup.seeds)
        every = [Records(with_seed(setup, seed).output) for seed in seeds]
        tables = [{e.row: e for e in r.require(EvaluationsRecord).evaluations} for r in every]
        labels = {row.name: row.label for r in every for row in r.require(RowsRecord).rows}
        rows: list[SeedSpread] = []
        for name in tables[0]:
            there = {s: t[name] for s, t in zip(seeds, tables, strict=True) if name in t}
            losses = {s: e.loss.value for s, e in there.items()}
            averages = {s: e.overall_average.value for s, e in there.items() if e.overall_average is not None}
            rows += _spread(name, Signal.LOSS, losses, labels[name])
            rows += _spread(name, Signal.ACCURACY, averages, labels[name])
        spreads = _differences(seeds, [r.require(ComparisonsRecord).comparisons for r in every])
        further = {
            name_of(kind, name): _differences(seeds, [r.require(kind, name).comparisons for r in every])
            for kind, name in _further(setup)
        }
        return SeedsRecord(
            inputs=inputs,
            seeds=tuple(seeds),
            split=Split.TEST,
            rows=tuple(rows),
            comparisons=spreads,
            further=further,
            grid=_grid({seed: sweep_of(r, "scaling") for seed, r in zip(seeds, every, strict=True)}),
            words=over_seeds(spreads),
        )

    return records.ensure(SeedsRecord, inputs, make)


def seeds_inputs(setup: Setup) -> dict[str, str]:
    """What the record is made from: the comparisons of every seed. What is not there yet has no hash."""
    compared: list[tuple[type[Compared], str | None]] = [(ComparisonsRecord, None), *_further(setup)]
    return {
        f"seed-{seed}/{name_of(kind, name)}": records.digest(kind, name) if records.path(kind, name).is_file() else ""
        for seed in range(setup.seeds)
        for records in [Records(with_seed(setup, seed).output)]
        for kind, name in compared
    }


def _grid(sweeps: Mapping[int, SweepRecord | None]) -> tuple[GridGain, ...]:
    """Empty where a seed has no (N, K) sweep."""
    cells = {seed: sweep.cells for seed, sweep in sweeps.items() if sweep is not None}
    gains = grid_gains(cells) if len(cells) == len(sweeps) else {}
    return tuple(
        GridGain(n_branches=n, k=k, loss=spread)
        for (n, k), values in gains.items()
        for spread in _spread(f"N={n}/K={k}", Signal.LOSS, values, f"N={n} against one branch, K={k}")
    )


def _further(setup: Setup) -> list[tuple[type[SweepRecord | FineTuningRecord], str | None]]:
    """Records besides the main table's that hold comparisons."""
    sweeps: list[tuple[type[SweepRecord | FineTuningRecord], str | None]] = [
        (SweepRecord, s.name) for s in setup.sweeps
    ]
    return [*sweeps, (FineTuningRecord, None)] if setup.sft is not None else sweeps


def _differences(seeds: Sequence[int], comparisons: Sequence[Sequence[ComparisonRecord]]) -> tuple[SeedSpread, ...]:
    """What some seeds do not have (another branch passed the screen) is spread over those that have it."""
    found = [{(c.name, c.signal): c for c in of_seed} for of_seed in comparisons]
    return tuple(
        spread
        for name, signal in dict.fromkeys(key for of_seed in found for key in of_seed)
        for spread in _spread(
            name,
            signal,
            {s: f[name, signal].difference for s, f in zip(seeds, found, strict=True) if (name, signal) in f},
            next(f[name, signal].label for f in found if (name, signal) in f) or name,
        )
    )


def _spread(name: str, signal: Signal, values: Mapping[int, float | None], label: str) -> list[SeedSpread]:
    usable = {str(seed): value for seed, value in values.items() if value is not None}
    if not usable:
        return []
    spread = spread_over_seeds(list(usable.values()))
    return [
        SeedSpread(
            name=name,
            signal=signal,
            values=usable,
            mean=spread.mean,
            deviation=spread.deviation,
            low=spread.low,
            high=spread.high,
            label=label,
        )
    ]
