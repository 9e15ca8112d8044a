"""What the commands print: tables, notes, progress, JSON. rich is imported when something is printed, not before."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer

from trajsoup.store.shown import shown

Cell = str | int | float | None


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text, in which whatever a terminal would act on is spelled out."""
    typer.echo(shown(text), err=err, nl=nl)


def show_json(data: Any) -> None:
    """Print a result for programs."""
    from trajsoup.store.json_file import json_text

    say(json_text(data))


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print a table; numbers to the right, names never cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=shown(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        numeric = all(isinstance(row[i], int | float | None) for row in rows)
        table.add_column(shown(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(cell) for cell in row))
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)


def show_notes(notes: Sequence[str]) -> None:
    """Print what the user should know but need not act on."""
    for note in notes:
        say(f"note: {note}", err=True)


@contextlib.contextmanager
def progress_bar(label: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes bytes done. Draws rate and time left on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda nbytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total_bytes)
        yield lambda nbytes: bar.update(task, advance=nbytes)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4f}" if isinstance(cell, float) else shown(cell)
