"""The spread over seeds: the main table and all comparisons, collected from the records of every seed.

    comparisons of every seed -> the scores by document that they name -> seeds x documents crossed (core/crossed.py)

Seeds share their test documents, so what those have in common is in every seed: an interval over seeds alone leaves it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.crossed import crossed_interval, holm
from trajsoup.core.scores import TestScores, mean_scores
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.core.statistics import paired_losses, paired_tasks, spread_over_seeds
from trajsoup.errors import ScoreError
from trajsoup.store.scores import test_store
from trajsoup.study.file.study import Setup, with_seed
from trajsoup.study.records.comparisons import ComparisonRecord, ComparisonsRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import Records, digest_of, name_of
from trajsoup.study.records.fine_tuning import FineTuningRecord
from trajsoup.study.records.neighbours import NeighboursRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.seeds import GridGain, SeedSpread, SeedsRecord
from trajsoup.study.records.sweeps import SweepRecord, sweep_of
from trajsoup.study.stages.fine_tuning import TUNED_SCORES
from trajsoup.study.stages.grid import grid_gains
from trajsoup.study.stages.neighbours import has_neighbours
from trajsoup.study.stages.words import over_seeds
from trajsoup.study.workbench import SCORES

Further = SweepRecord | FineTuningRecord | NeighboursRecord
Compared = ComparisonsRecord | Further


def seeds_stage(records: Records, setup: Setup) -> bool:
    """Collect main table and comparisons over the seeds; the records of the first are the study's own."""
    inputs = seeds_inputs(setup)

    def make() -> SeedsRecord:
        seeds = range(setup.seeds)
        every = [Records(with_seed(setup, seed).output) for seed in seeds]
        labels = {row.name: row.label for r in every for row in r.require(RowsRecord).rows}
        scored = [_evaluated(r) for r in every]
        names = dict.fromkeys(key for of_seed in scored for key in of_seed)
        compared = _spreads([_compared(r, r.require(ComparisonsRecord)) for r in every])
        primary = {(c.name, c.signal) for r in every for c in r.require(ComparisonsRecord).comparisons if c.primary}
        spreads = _with_verdicts([replace(c, primary=(c.name, c.signal) in primary) for c in compared])
        return SeedsRecord(
            inputs=inputs,
            seeds=tuple(seeds),
            split=Split.TEST,
            rows=_spreads([{key: of_seed[key] for key in names if key in of_seed} for of_seed in scored], labels),
            comparisons=spreads,
            further={name_of(kind, name): further_spreads(every, kind, name) for kind, name in _further(setup)},
            grid=_grid({seed: sweep_of(r, "scaling") for seed, r in zip(seeds, every, strict=True)}),
            words=over_seeds(spreads),
        )

    return records.ensure(SeedsRecord, inputs, make)


def further_spreads(every: Sequence[Records], kind: type[Further], name: str | None) -> tuple[SeedSpread, ...]:
    """The comparisons of one sweep, of fine-tuning or of neighbours that train, over the records of several seeds."""
    return _spreads([_compared(r, r.require(kind, name)) for r in every])


def seeds_inputs(setup: Setup) -> dict[str, str]:
    """What the record is made from: the comparisons of every seed. What is not there yet has no hash."""
    compared: list[tuple[type[Compared], str | None]] = [(ComparisonsRecord, None), *_further(setup)]
    registered = {"primary": digest_of([str(one) for one in setup.primary])}
    return registered | {
        f"seed-{seed}/{name_of(kind, name)}": records.digest(kind, name) if records.path(kind, name).is_file() else ""
        for seed in range(setup.seeds)
        for records in [Records(with_seed(setup, seed).output)]
        for kind, name in compared
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One number of one seed, and what it is made of by document or item: read only where it is needed."""

    value: float
    label: str
    parts: Callable[[], tuple[list[Array], list[Array]]]  # differences and weights of each stratum


Array = NDArray[np.float64]
Key = tuple[str, Signal]


def _evaluated(records: Records) -> dict[Key, Measured]:
    """The scores of the main table's rows."""
    read = _reader(records, SCORES)
    found: dict[Key, Measured] = {}
    for e in records.require(EvaluationsRecord).evaluations:
        for signal, estimate in ((Signal.LOSS, e.loss), (Signal.ACCURACY, e.overall_average)):
            if estimate is not None and estimate.value is not None:
                parts = functools.partial(_parts, read, (e.kept, ()), signal)
                found[e.row, signal] = Measured(value=estimate.value, label=e.row, parts=parts)
    return found


def _compared(records: Records, record: Compared) -> dict[Key, Measured]:
    """The comparisons of one record; one of which a side diverged is no number, and is left out."""
    read = _reader(records, TUNED_SCORES if isinstance(record, FineTuningRecord) else SCORES)

    def measured(c: ComparisonRecord, value: float) -> Measured:
        return Measured(value=value, label=c.label or c.name, parts=functools.partial(_parts, read, c.kept, c.signal))

    return {(c.name, c.signal): measured(c, c.difference) for c in record.comparisons if c.difference is not None}


Read = Callable[[tuple[str, ...]], TestScores]


def _reader(records: Records, folder: str) -> Read:
    store = test_store(records.study / folder)

    @functools.cache
    def read(kept: tuple[str, ...]) -> TestScores:
        if not kept:
            raise ScoreError(
                f"{records.folder} names no scores by document, so seeds cannot be compared: remove its comparisons and "
                "evaluations, and they are made again"
            )
        return mean_scores([store.named(name) for name in kept])

    return read


def _parts(
    read: Read, kept: tuple[tuple[str, ...], tuple[str, ...]], signal: Signal
) -> tuple[list[Array], list[Array]]:
    """Model minus reference by document or item; without a reference, the model's own."""
    mine = read(kept[0])
    theirs = read(kept[1]) if kept[1] else _nothing(mine)
    if signal is Signal.LOSS:
        assert mine.losses is not None
        assert theirs.losses is not None
        difference, weights = paired_losses(mine.losses, theirs.losses)
        return [difference], [weights]
    return paired_tasks(mine.tasks, theirs.tasks)


def _nothing(scores: TestScores) -> TestScores:
    losses = None if scores.losses is None else replace(scores.losses, nll=np.zeros(len(scores.losses.nll)))
    tasks = tuple(replace(task, correct=np.zeros(len(task.correct))) for task in scores.tasks)
    return TestScores(losses=losses, tasks=tasks)


def _spreads(
    every: Sequence[Mapping[Key, Measured]], labels: Mapping[str, str] | None = None
) -> tuple[SeedSpread, ...]:
    """Each number over the seeds that have it; the others (another branch passed the screen) are counted."""
    found: list[SeedSpread] = []
    for key in dict.fromkeys(key for of_seed in every for key in of_seed):
        there = {str(seed): of_seed[key] for seed, of_seed in enumerate(every) if key in of_seed}
        without = tuple(str(seed) for seed in range(len(every)) if str(seed) not in there)
        label = next(iter(there.values())).label
        found.append(_crossed(key, there, (labels or {}).get(key[0], label), without))
    return tuple(found)


def _crossed(key: Key, there: Mapping[str, Measured], label: str, without: tuple[str, ...]) -> SeedSpread:
    values = {seed: measured.value for seed, measured in there.items()}
    spread = SeedSpread(
        name=key[0],
        signal=key[1],
        values=values,
        mean=float(np.mean(list(values.values()))),
        deviation=spread_over_seeds(list(values.values())).deviation,
        low=None,
        high=None,
        label=label,
        without=without,
    )
    if len(there) < 2:
        return spread
    parts = [measured.parts() for measured in there.values()]
    weights = parts[0][1]
    if any(not all(map(np.array_equal, weights, other)) or len(other) != len(weights) for _, other in parts):
        raise ScoreError(f"{label}: the seeds were scored on different documents or items, so they are not one study")
    found = crossed_interval([np.stack(same) for same in zip(*(d for d, _ in parts), strict=True)], weights=weights)
    return replace(
        spread,
        low=found.low,
        high=found.high,
        p=found.p,
        seeds_error=found.seeds_error,
        documents_error=found.documents_error,
        together_error=found.together_error,
        count=found.documents,
    )


def _with_verdicts(spreads: Sequence[SeedSpread]) -> tuple[SeedSpread, ...]:
    """The registered ones with their p values adjusted for all of them (Holm)."""
    adjusted = iter(holm([c.p for c in spreads if c.primary and c.p is not None]))
    return tuple(replace(c, p_holm=next(adjusted)) if c.primary and c.p is not None else c for c in spreads)


def _grid(sweeps: Mapping[int, SweepRecord | None]) -> tuple[GridGain, ...]:
    """Empty where a seed has no (N, K) sweep. Student's interval over seeds, for these validation documents."""
    cells = {seed: sweep.cells for seed, sweep in sweeps.items() if sweep is not None}
    gains = grid_gains(cells) if len(cells) == len(sweeps) else {}
    found: list[GridGain] = []
    for (n, k), gain in gains.items():
        values = {str(seed): value for seed, value in gain.items() if value is not None}
        if values:
            spread = spread_over_seeds(list(values.values()))
            loss = SeedSpread(
                name=f"N={n}/K={k}",
                signal=Signal.LOSS,
                values=values,
                mean=spread.mean,
                deviation=spread.deviation,
                low=spread.low,
                high=spread.high,
                label=f"N={n} against one branch, K={k}",
            )
            found.append(GridGain(n_branches=n, k=k, loss=loss))
    return tuple(found)


def _further(setup: Setup) -> list[tuple[type[Further], str | None]]:
    """Records besides the main table's that hold comparisons."""
    found: list[tuple[type[Further], str | None]] = [(SweepRecord, s.name) for s in setup.sweeps]
    found += [(FineTuningRecord, None)] if setup.sft is not None else []
    return [*found, (NeighboursRecord, None)] if has_neighbours(setup) else found
