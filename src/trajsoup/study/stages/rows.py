"""The rows stage: choose the rows of the main table on validation."""

from __future__ import annotations

from trajsoup.study.choosing.entries import choose_entries, options_of, row_record
from trajsoup.study.choosing.main_table import main_entries
from trajsoup.study.records.results import RowsRecord, ScreenRecord
from trajsoup.study.stages.sweeps import sweep_entries
from trajsoup.study.workbench import Workbench


def rows_stage(bench: Workbench) -> bool:
    """Choose the rows of the main table on validation."""
    inputs = {"screen": bench.records.digest(ScreenRecord)}

    def make() -> RowsRecord:
        field = bench.field()
        entries = main_entries(field)
        later = [entry for sweep in bench.setup.sweeps for entry in sweep_entries(field, sweep)]
        scores = bench.scorer.validate(options_of([*entries, *later]), what="choosing")  # one read for all of them
        chosen = choose_entries(entries, scores, rank_by=bench.setup.evaluation.rank_by)
        return RowsRecord(inputs=inputs, rows=tuple(row_record(c) for c in chosen))

    return bench.records.ensure(RowsRecord, inputs, make)
