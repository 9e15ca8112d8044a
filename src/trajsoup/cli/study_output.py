"""What `run`, `demo` and `sweep` print: live progress, tables as on the terminal, Markdown, CSV or JSON."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from trajsoup.cli.console import show_table
from trajsoup.cli.options import Form

if TYPE_CHECKING:
    from trajsoup.report.table import Table
    from trajsoup.study.records.files import Records

PLAIN_SECONDS = 10


def show(table: Table, form: Form) -> None:
    """Print one table."""
    if form is Form.MARKDOWN:
        typer.echo(table.markdown())
    elif form is Form.CSV:
        typer.echo(table.csv(), nl=False)
    else:
        show_table(table.title, table.columns, table.texts)
        for note in table.notes:
            typer.echo(note)
        typer.echo("")


def show_answer(records: Records) -> None:
    """Print what a finished study comes to: three tables and at most six lines; the page shows the others."""
    from trajsoup.report.sections.answer import headlines
    from trajsoup.report.sections.conditions import conditions_table
    from trajsoup.report.sections.crossing import crossing_table
    from trajsoup.report.sections.results import main_table
    from trajsoup.study.records.conditions import ConditionsRecord
    from trajsoup.study.records.sweeps import sweep_of

    crossing = sweep_of(records, "crossing")
    tables = [main_table(records), conditions_table(records.require(ConditionsRecord))]
    for table in tables if crossing is None else [crossing_table(crossing), *tables]:
        show(table, Form.TERMINAL)
    for line in headlines(records):
        typer.echo(line)


def show_study(records: Records, form: Form, *, sweeps: bool = True) -> None:
    """Print all tables of a finished study."""
    from trajsoup.report.sections.ablations import sweep_table
    from trajsoup.report.sections.branches import screen_table
    from trajsoup.report.sections.compute import frontier_table
    from trajsoup.report.sections.crossing import crossing_table
    from trajsoup.report.sections.results import fine_tuning_tables, main_table
    from trajsoup.report.sections.scaling import cells_table, fits_table, held_out_table
    from trajsoup.report.sections.seeds import seeds_tables
    from trajsoup.study.records.frontier import FrontierRecord
    from trajsoup.study.records.screen import ScreenRecord
    from trajsoup.study.records.sweeps import SweepRecord, sweep_of
    from trajsoup.study.records.theory import TheoryRecord

    tables: list[Table] = [screen_table(records.require(ScreenRecord)), main_table(records)]
    if sweeps:
        every = records.every(SweepRecord).values()
        tables += [crossing_table(s) if s.kind == "crossing" else sweep_table(s) for s in every]
        points, frontier = sweep_of(records, "frontier"), records.read(FrontierRecord)
        if points is not None and frontier is not None:
            tables.append(frontier_table(frontier, points))
    if (theory := records.read(TheoryRecord)) is not None:
        tables += [cells_table(theory), fits_table(theory), held_out_table(theory)]
    tables += [*fine_tuning_tables(records), *seeds_tables(records)]
    for table in tables:
        if table.rows:
            show(table, form)


class StageLines:
    """Says on stderr which stage is at work, and how many rows are scored, now and then."""

    def __init__(self) -> None:
        self._last = 0.0

    def stage(self, name: str, seed: int | None) -> None:
        """A stage begins."""
        suffix = "" if not seed else f" (seed {seed})"
        typer.echo(f"{name}{suffix}", err=True)

    def score(self, what: str, done: int, total: int) -> None:
        """Rows are being scored."""
        now = time.monotonic()
        if done == total or now - self._last >= (1 if sys.stderr.isatty() else PLAIN_SECONDS):
            self._last = now
            typer.echo(f"  {what}: {done} of {total} rows", err=True)
