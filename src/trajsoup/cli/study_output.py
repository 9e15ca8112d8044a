"""What `run`, `demo` and `sweep` print: live progress, tables as on the terminal, Markdown, CSV or JSON."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import show_table

if TYPE_CHECKING:
    from trajsoup.study.records.files import Records
    from trajsoup.study.tables import Table

PLAIN_SECONDS = 10


class Form(StrEnum):
    """How tables are printed."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"  # one object for each table, a line each


FormOption = Annotated[Form, typer.Option("--format", help="How tables are printed.")]


def show(table: Table, form: Form) -> None:
    """Print one table."""
    if form is Form.MARKDOWN:
        typer.echo(table.markdown())
    elif form is Form.JSON:
        typer.echo(table.json())
    elif form is Form.CSV:
        typer.echo(table.csv(), nl=False)
    else:
        show_table(table.title, table.columns, table.rows)
        for note in table.notes:
            typer.echo(note)
        typer.echo("")


def show_study(records: Records, form: Form, *, sweeps: bool = True) -> None:
    """Print all tables of a finished study."""
    from trajsoup.study.file.sweeps import SweepKind
    from trajsoup.study.records.results import SeedsRecord, SweepRecord
    from trajsoup.study.records.scaling import FrontierRecord, TheoryRecord
    from trajsoup.study.tables import (
        comparisons_table,
        fine_tuning_table,
        frontier_table,
        further_comparisons,
        main_table,
        screen_table,
        seeds_table,
        sweep_table,
        theory_table,
    )

    tables = [screen_table(records), main_table(records)]
    if sweeps:
        every = [records.require(SweepRecord, name) for name in records.every(SweepRecord)]
        tables += [sweep_table(sweep) for sweep in every]
        points = next((sweep for sweep in every if sweep.kind is SweepKind.FRONTIER), None)
        if points is not None and (frontier := records.read(FrontierRecord)) is not None:
            tables.append(frontier_table(frontier, points))
    if (theory := records.read(TheoryRecord)) is not None and theory.cells:
        tables.append(theory_table(theory))
    if (tuned := fine_tuning_table(records)) is not None:
        tables.append(tuned)
    if (seeds := records.read(SeedsRecord)) is not None:
        tables += [seeds_table(seeds), comparisons_table(seeds.comparisons), *further_comparisons(records)]
    for table in tables:
        show(table, form)


def paragraph(sentences: Sequence[str]) -> str:
    """One paragraph."""
    return " ".join(sentences)


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


@contextlib.contextmanager
def limited_instructions() -> Iterator[None]:
    """Give torch, before it is loaded here, the instructions it may use on this machine."""
    import os

    from trajsoup.lm.cpu_isa import isa_environment
    from trajsoup.study.cache import cache_folder

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ |= isa_environment(cache=cache_folder())
    yield
