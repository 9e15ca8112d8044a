"""What `run`, `demo` and `sweep` print: live progress, tables as on the terminal, Markdown, CSV or JSON."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from trajsoup.cli.console import say, show_table
from trajsoup.cli.options import Form

if TYPE_CHECKING:
    from trajsoup.report.table import Table
    from trajsoup.study.records.files import Records

PLAIN_SECONDS = 10


def show(table: Table, form: Form) -> None:
    """Print one table."""
    if form is Form.MARKDOWN:
        say(table.markdown())
    elif form is Form.CSV:
        say(table.csv(), nl=False)
    else:
        show_table(table.title, table.columns, table.texts)
        for note in table.notes:
            say(note)
        say("")


def show_answer(records: Records) -> None:
    """Print what a finished study comes to: three tables and at most six lines; the page shows the others."""
    from trajsoup.report.sections.answer import headlines
    from trajsoup.report.sections.conditions import conditions_table
    from trajsoup.report.sections.crossing import crossing_table
    from trajsoup.report.sections.results import main_table
    from trajsoup.report.sections.trained_neighbours import section as neighbours
    from trajsoup.study.records.conditions import ConditionsRecord
    from trajsoup.study.records.sweeps import sweep_of

    crossing = sweep_of(records, "crossing")
    tables = [main_table(records), conditions_table(records.require(ConditionsRecord))]
    if (trained := neighbours(records)) is not None:
        tables += trained.tables
    for table in tables if crossing is None else [crossing_table(crossing), *tables]:
        show(table, Form.TERMINAL)
    for line in headlines(records):
        say(line)


def show_study(records: Records, form: Form) -> None:
    """Print all tables of a finished study: those of the page, and every point of the sweeps that it only draws."""
    from trajsoup.report.sections import make_sections
    from trajsoup.report.sections.ablations import sweep_table
    from trajsoup.study.records.sweeps import SweepRecord

    tables = {table.name: table for shown in make_sections(records) for table in shown.content.every_table}
    swept = (sweep_table(sweep) for sweep in records.every(SweepRecord).values() if sweep.kind not in tables)
    for table in (tables | {table.name: table for table in swept}).values():
        if table.rows:
            show(table, form)


class StageLines:
    """Says on stderr which stage is at work, and how many rows are scored, now and then."""

    def __init__(self) -> None:
        self._last = 0.0

    def stage(self, name: str, seed: int | None) -> None:
        """A stage begins."""
        suffix = "" if not seed else f" (seed {seed})"
        say(f"{name}{suffix}", err=True)

    def score(self, what: str, done: int, total: int | None) -> None:
        """Rows are being scored, or gradients taken until a method has enough of them."""
        now = time.monotonic()
        if done == total or now - self._last >= (1 if sys.stderr.isatty() else PLAIN_SECONDS):
            self._last = now
            say(f"  {what}: {done:,}" + ("" if total is None else f" of {total:,} rows"), err=True)
