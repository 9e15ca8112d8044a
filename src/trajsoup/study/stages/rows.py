"""The rows stage: the methods of the main table choose their rows on validation."""

from __future__ import annotations

from dataclasses import replace

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.study.choosing.entries import Chosen, choose_entries
from trajsoup.study.choosing.main_table import main_entries
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.rows import ChosenOn, RowRecord, RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.stages.estimates import row_of
from trajsoup.study.workbench import Workbench


def rows_stage(bench: Workbench) -> bool:
    """Choose the rows of the main table on validation; with them, in the same reads, what the sweeps will choose."""
    field = bench.field()
    entries = main_entries(field)
    inputs = {"screen": bench.records.digest(ScreenRecord), "entries": digest_of([entry.name for entry in entries])}

    def make() -> RowsRecord:
        later = [entry for asked in bench.setup.sweeps for entry in bench.entries(asked)]
        every = choose_entries(
            [*entries, *later], bench.scoring("choosing"), measuring=bench.measure, descending=bench.descend
        )
        chosen = every[: len(entries)]
        rows = (row_record(c, field.rank_by) for c in chosen)
        return RowsRecord(inputs=inputs, rows=tuple(replace(row, sums=_sums(bench, row)) for row in rows))

    return bench.records.ensure(RowsRecord, inputs, make)


def _sums(bench: Workbench, row: RowRecord) -> tuple[str, ...]:
    made_of = bench.present(row_of(row))
    return () if made_of.mean_of is None else tuple(made_of.weights)


def row_record(chosen: Chosen, rank_by: Signal) -> RowRecord:
    """The chosen row as the records keep it."""
    entry, option, scores = chosen.entry, chosen.option, chosen.validation
    return RowRecord(
        name=entry.name,
        label=entry.label,
        strategy=entry.strategy,
        setting=entry.setting,
        select=entry.select,
        coefficients=entry.coefficients,
        k=option.k,
        horizon=option.horizon,
        budget_tokens=option.budget_tokens,
        branches=option.branches,
        weights=dict(option.weights),
        groups=option.groups,
        chosen_on=chosen_on(chosen, rank_by),
        validation_loss=None if scores.losses is None else scores.losses.loss(),
        validation_accuracy=scores.overall_average,
        alone=entry.alone,
    )


def chosen_on(chosen: Chosen, rank_by: Signal) -> ChosenOn:
    """On what the choice was made."""
    found = chosen.decision
    return ChosenOn(
        split=Split.VALIDATION,
        signal=chosen.entry.rank_by or rank_by,
        free=found.free,
        among=found.among,
        score=found.score,
        trained=found.trained,
        validation_passes=found.spent.validation_passes,
        gradient_tokens=found.spent.gradient_tokens,
        promise=found.promise,
    )
