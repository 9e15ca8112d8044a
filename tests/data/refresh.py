"""Give the example studies the fields that records have gained since they ran; their numbers stay.

python -m tests.data.refresh        from what the records hold: no checkpoint is needed, and none is kept
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from scipy import stats

from trajsoup.core.crossed import holm
from trajsoup.core.estimators import SoupLosses, fit_branches
from trajsoup.core.geometry import random_walk_share
from trajsoup.core.numerics import t_quantile
from trajsoup.core.pair_gain import PairGain, relate
from trajsoup.core.scaling import fit_power_law
from trajsoup.core.signal import Signal
from trajsoup.study.file.primary import DEFAULT
from trajsoup.study.file.study import load_study
from trajsoup.study.records.files import Records, name_of
from trajsoup.study.records.results import (
    AnswerRecord,
    ColumnTies,
    ComparisonsRecord,
    FineTuningRecord,
    GeometryRecord,
    RowsRecord,
    SeedsRecord,
    SweepRecord,
    ValidationRecord,
    sweep_of,
)
from trajsoup.study.records.scaling import FrontierRecord, TheoryRecord
from trajsoup.study.run import run_one
from trajsoup.study.score.scorer import silent
from trajsoup.study.stages import STAGES
from trajsoup.study.stages.comparisons import with_verdicts
from trajsoup.study.stages.frontier import BEYOND, fitted_law
from trajsoup.study.stages.grid import grid_cells
from trajsoup.study.stages.pair_gains import relation_line
from trajsoup.study.stages.theory import counts_of, statistic_over_branches
from trajsoup.study.stages.theory_words import theory_words
from trajsoup.study.stages.validation import saturation
from trajsoup.study.stages.words import over_seeds
from trajsoup.study.workbench import Workbench

EXAMPLES = ("example-study", "example-seeds")


def refresh(folder: Path) -> None:
    """Fill what is missing, in the order of the stages, so that every record names the inputs that now exist."""
    records = Records(folder, held=True)
    for stage in STAGES:
        names = records.every(SweepRecord) if stage.record.SEVERAL else [None]
        for name in names:
            record = records.read(stage.record, name)
            if record is not None:
                now = records.digests_by_name(record.inputs)
                record = judged(labelled(filled(record), records))
                record = over_branches(answered(record, records), records)
                records.write(dataclasses.replace(record, inputs={**record.inputs, **now}))
    seeds = records.read(SeedsRecord)
    if seeds is not None:
        registered = {(c.name, c.signal) for c in records.require(ComparisonsRecord).comparisons if c.primary}
        found = [dataclasses.replace(c, primary=(c.name, c.signal) in registered) for c in seeds.comparisons]
        found = [c if c.p is not None else dataclasses.replace(c, p=_student(c)) for c in found]
        adjusted = iter(holm([c.p for c in found if c.primary]))
        found = tuple(dataclasses.replace(c, p_holm=next(adjusted) if c.primary else None) for c in found)
        seeds = dataclasses.replace(seeds, comparisons=found, words=over_seeds(found))
        own = {f"seed-0/{name}": digest for name, digest in records.digests_by_name(_compared(records)).items()}
        records.write(dataclasses.replace(seeds, inputs={**seeds.inputs, **own}))


def filled(record):
    """The record with what follows from it."""
    match record:
        case ValidationRecord():
            return dataclasses.replace(record, saturation=saturation(record.checkpoints))
        case RowsRecord():
            rows = tuple(dataclasses.replace(r, alone=r.name.startswith("single/")) for r in record.rows)
            return dataclasses.replace(record, rows=rows)
        case SweepRecord():
            points = tuple(dataclasses.replace(p, alone="/single/" in p.row) for p in record.points)
            cells = grid_cells(points) if record.kind == "scaling" else ()
            return dataclasses.replace(record, points=points, cells=cells)
        case FrontierRecord():
            until = BEYOND * max(record.compute(p) for p in record.points)
            laws = [
                fitted_law(fit_power_law(law.points, rank_by=law.signal), law.series, law.signal, until=until)
                for law in record.laws
            ]
            return dataclasses.replace(record, laws=tuple(laws))
        case GeometryRecord():
            directions = tuple(
                dataclasses.replace(d, random_walk_share=random_walk_share(d.points, window=record.window))
                for d in record.directions
            )
            gains = [
                PairGain(first=p.first, second=p.second, cosine=p.cosine, gains=p.gains, left_out=())
                for p in record.pairs
            ]
            relation = relate(gains) if gains else None
            line = relation_line(relation, record.pairs)
            return dataclasses.replace(record, directions=directions, relation=relation, relation_line=line)
        case FineTuningRecord() if not record.ties:
            return dataclasses.replace(record, ties=(_overall_ties(record),))
        case _:
            return record


def judged(record):
    """Comparisons with p values, as far as an interval tells them, and the verdicts on the registered ones."""
    if not isinstance(record, ComparisonsRecord | SweepRecord | FineTuningRecord):
        return record
    told = [c if c.p is not None and c.kept[0] else dataclasses.replace(c, p=_normal(c)) for c in record.comparisons]
    found = with_verdicts(told, DEFAULT if isinstance(record, ComparisonsRecord) else ())
    return dataclasses.replace(record, comparisons=found)


def answered(record, records: Records):
    """The answer with its comparisons as they now are."""
    if not isinstance(record, AnswerRecord):
        return record
    found = {(c.name, c.signal): c for c in records.require(ComparisonsRecord).comparisons}
    loss, accuracy = (found.get(("soup-limited", signal)) for signal in (Signal.LOSS, Signal.ACCURACY))
    return dataclasses.replace(record, loss=loss, accuracy=accuracy)


def _normal(c) -> float:
    """The two-sided p value of a normal difference with this interval."""
    if c.difference == 0 or c.high == c.low:
        return 1.0
    return math.erfc(abs(c.difference) / ((c.high - c.low) / 3.92) / math.sqrt(2))


def _student(c) -> float:
    """That of a Student interval of a mean over seeds."""
    n = len(c.values)
    if n < 2:
        return 1.0
    error = (c.high - c.low) / 2 / t_quantile(0.975, degrees=n - 1)
    return float(2 * stats.t.sf(abs(c.mean) / error, n - 1)) if error else 1.0


def over_branches(record, records: Records):
    """Variances with the jackknife over branches, from the (N, K) sweep and the scores of the checkpoints."""
    sweep = sweep_of(records, "scaling")
    if not isinstance(record, TheoryRecord) or sweep is None:
        return record
    checkpoints = records.require(ValidationRecord).checkpoints
    losses = SoupLosses(
        soups={(frozenset(p.branches), p.k): p.validation_loss for p in sweep.points},
        ranks={b: sorted(c.loss for c in checkpoints if c.branch == b) for b in record.branches},
    )
    fits = {k: fit_branches(losses, k=k) for k in losses.counts()}
    n = len(record.branches)
    k = next(best.k for best in record.best if best.n_branches == n)
    worth = statistic_over_branches(losses, fits[k], lambda found: fit_branches(found, k=k).worth_of_branch(n))
    said = tuple(w for w in record.words if w.startswith("No fit"))
    return theory_words(dataclasses.replace(record, counts=counts_of(losses, fits), worth_of_branch=worth, words=said))


def labelled(record, records: Records):
    """The record with both sides of its comparisons as people call them."""
    if not isinstance(record, ComparisonsRecord | SweepRecord | FineTuningRecord):
        return record
    names = {row.name: row.label for row in records.require(RowsRecord).rows}
    if isinstance(record, SweepRecord):
        names = {p.row: p.row.partition("/")[2] for p in record.points}
    compared = [
        dataclasses.replace(c, label=f"{names[c.model]} against {names[c.reference]}") for c in record.comparisons
    ]
    return dataclasses.replace(record, comparisons=tuple(compared))


def _overall_ties(record: FineTuningRecord) -> ColumnTies:
    """Without scores by item only what was compared can tie."""
    best = max(record.rows, key=lambda row: row.overall_average.value or 0.0).row
    pairs = [{c.model, c.reference} for c in record.comparisons if c.low <= 0 <= c.high and c.signal is Signal.ACCURACY]
    tied = tuple(row.row for row in record.rows if {row.row, best} in pairs and row.row != best)
    return ColumnTies(column=None, signal=Signal.ACCURACY, best=best, tied=tied)


def _compared(records: Records) -> list[str]:
    sweeps = [name_of(SweepRecord, name) for name in records.every(SweepRecord)]
    return ["comparisons", *sweeps, FineTuningRecord.FILE]


class Restamped(Records):
    """Records whose inputs become those that the study now has."""

    def stands(self, kind, inputs, name=None):
        """Write the record with these inputs."""
        record = self.require(kind, name)
        if record.inputs != inputs:
            self.write(dataclasses.replace(record, inputs=inputs))
        return True


def restamp(folder: Path) -> None:
    """As after a run of today's code: nothing is out of date."""
    setup = load_study(folder / "study.yaml")
    records = Restamped(folder, held=True)
    run_one(Workbench(setup, cache=folder / "cache", progress=silent, records=records))


if __name__ == "__main__":
    for name in EXAMPLES:
        refresh(Path(__file__).with_name(name))
    restamp(Path(__file__).with_name(EXAMPLES[0]))
