"""Give the example studies the fields that records have gained since they ran; their numbers stay.

python -m tests.data.refresh        from what the records hold: no checkpoint is needed, and none is kept
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from trajsoup.core.screening import screened_at
from trajsoup.core.signal import Signal
from trajsoup.study.file.study import load_study
from trajsoup.study.records.files import Records, name_of
from trajsoup.study.records.results import (
    ColumnTies,
    ComparisonsRecord,
    FineTuningRecord,
    GeometryRecord,
    RowsRecord,
    ScreenRecord,
    SeedsRecord,
    SweepRecord,
    ValidationRecord,
    sweep_of,
)
from trajsoup.study.records.scaling import FrontierRecord, TheoryRecord
from trajsoup.study.run import run_one
from trajsoup.study.score.scorer import silent
from trajsoup.study.stages import STAGES
from trajsoup.study.stages.compute_axis import compute_fields
from trajsoup.study.stages.frontier import fitted_laws
from trajsoup.study.stages.grid import grid_cells
from trajsoup.study.stages.pair_gains import relation_line
from trajsoup.study.stages.theory_words import theory_words
from trajsoup.study.stages.validation import saturation
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
                record = labelled(filled(record, records), records)
                records.write(dataclasses.replace(record, inputs={**record.inputs, **now}))
    seeds = records.read(SeedsRecord)
    if seeds is not None:
        own = {f"seed-0/{name}": digest for name, digest in records.digests_by_name(_compared(records)).items()}
        records.write(dataclasses.replace(seeds, inputs={**seeds.inputs, **own}))


def filled(record, records: Records):
    """The record with what follows from it and those before it."""
    match record:
        case ScreenRecord():
            positions = sorted({tokens for v in record.verdicts for tokens, _ in v.gaps})
            return dataclasses.replace(
                record, early=tuple(screened_at(record.verdicts, horizon=tokens) for tokens in positions)
            )
        case ValidationRecord():
            return dataclasses.replace(record, saturation=saturation(record.checkpoints))
        case RowsRecord():
            rows = tuple(
                dataclasses.replace(r, alone=r.name.startswith("single/"), chosen_on=trained(r)) for r in record.rows
            )
            return dataclasses.replace(record, rows=rows)
        case SweepRecord():
            points = tuple(
                dataclasses.replace(p, alone="/single/" in p.row, chosen_on=trained(p)) for p in record.points
            )
            cells = grid_cells(points) if record.kind == "scaling" else ()
            return dataclasses.replace(record, points=points, cells=cells)
        case FrontierRecord():
            sweep = sweep_of(records, "frontier")
            points = {p.row: p for p in sweep.points}
            laws, annotations = fitted_laws(sweep, record.flops_per_token or 1.0)
            return dataclasses.replace(
                record,
                laws=laws,
                annotations=annotations,
                points=tuple(
                    dataclasses.replace(
                        p,
                        n_branches=points[p.row].n_branches,
                        horizon=points[p.row].horizon,
                        k=points[p.row].k,
                        cost=dataclasses.replace(
                            p.cost, search_tokens=p.budget_tokens, search_flops=p.cost.training_flops
                        ),
                    )
                    for p in record.points
                ),
            )
        case TheoryRecord():
            said = dataclasses.replace(record, words=tuple(w for w in record.words if w.startswith("No ")))
            return theory_words(said)
        case GeometryRecord():
            line = relation_line(record.relation, record.pairs)
            return dataclasses.replace(record, relation_line=line, compute=compute_fields(records))
        case FineTuningRecord() if not record.ties:
            return dataclasses.replace(record, ties=(_overall_ties(record),))
        case _:
            return record


def trained(chosen):
    """On what it was chosen; of all that was compared, only what was chosen is known."""
    each = chosen.horizon or chosen.budget_tokens // len(chosen.branches)
    return dataclasses.replace(chosen.chosen_on, trained=dict.fromkeys(chosen.branches, each))


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
    pairs = [{c.model, c.reference} for c in record.comparisons if c.within_noise and c.signal is Signal.ACCURACY]
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
