"""What the commands print: tables, notes, progress, JSON. rich is imported when something is printed, not before."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer

from trajsoup.store.shown import shown

Cell = str | int | float | None
GUTTER = 3  # between two columns


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text, in which whatever a terminal would act on is spelled out."""
    typer.echo(shown(text), err=err, nl=nl)


def show_json(data: Any) -> None:
    """Print a result for programs."""
    from trajsoup.store.json_file import json_text

    say(json_text(data))


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print a table; numbers to the right, names never cut, no word broken: what is too wide comes in parts."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    numeric = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]
    names, texts = [shown(name) for name in columns], [[_text(cell) for cell in row] for row in rows]
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, emoji=False)
    for number, widths in enumerate(_parts(names, texts, console.width)):
        heading = shown(title) if number == 0 else None
        table = Table(title=heading, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for i, width in widths.items():
            table.add_column(names[i], justify="right" if numeric[i] else "left", overflow="fold", width=width)
        for row in texts:
            table.add_row(*(row[i] for i in widths))
        console.print(table)


def _parts(names: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> list[dict[int, int]]:
    """Columns with their widths, in parts that fit; the columns that tell rows apart begin each part."""
    from rich.cells import cell_len

    cells = [[name, *(row[i] for row in texts)] for i, name in enumerate(names)]
    whole = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]
    words = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    least = [min(word, width // 3) for word in words]
    room = width + 1 - GUTTER * len(names)
    if sum(whole) <= room:
        return [dict(enumerate(whole))]
    told = next((n for n in range(1, len(names)) if len({tuple(row[:n]) for row in texts}) == len(texts)), 1)
    keys = list(range(told if sum(least[:told]) + GUTTER * told <= width // 2 else 1))
    parts = [keys]
    for i in range(len(keys), len(names)):
        if len(parts[-1]) > len(keys) and sum(least[j] + GUTTER for j in (*parts[-1], i)) > width + 1:
            parts.append(keys)
        parts[-1] = [*parts[-1], i]
    found: list[dict[int, int]] = []
    for part in parts:
        widths = {i: least[i] for i in part}
        for _ in range(width + 1 - sum(least[i] + GUTTER for i in part)):
            tightest = max(part, key=lambda i: whole[i] - widths[i])
            widths[tightest] += whole[tightest] > widths[tightest]
        found.append(widths)
    return found


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
