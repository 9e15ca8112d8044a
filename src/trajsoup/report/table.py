"""One table for the terminal, the page, Markdown, spreadsheets and programs.

records -> Table (cells: what is read, what it is sorted by, how it is marked) -> page, terminal, .md, .csv, JSON
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

MISSING = "–"
Value = str | int | float | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One entry: what is read, and what it is sorted by."""

    text: str
    value: float | None = None  # None: sorted as text
    low: float | None = None  # bounds of its interval
    high: float | None = None
    best: bool = False
    in_noise: bool = False
    share: float | None = None  # 0 the worst of its column, 1 the best: how deeply it is tinted


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line; a click shows the soup where there is one."""

    cells: tuple[Cell, ...]
    soup: str | None = None
    ours: bool = False  # a Trajectory Soup: easy to find


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns, and sentences below them."""

    name: str  # of its file and its element
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> list[list[str]]:
        """What is read."""
        return [[cell.text for cell in row.cells] for row in self.rows]

    def numeric(self, column: int) -> bool:
        """Whether a column holds numbers, some perhaps missing."""
        cells = [row.cells[column] for row in self.rows]
        return any(c.value is not None for c in cells) and all(c.value is not None or c.text == MISSING for c in cells)

    def markdown(self) -> str:
        """For a README: best in bold, inside noise with ≈."""
        lines = [f"### {_escaped(self.title)}", "", _line([_escaped(name) for name in self.columns])]
        lines.append("|" + "|".join("---:" if self.numeric(i) else "---" for i in range(len(self.columns))) + "|")
        lines += [_line([_marked(cell) for cell in row.cells]) for row in self.rows]
        for note in self.notes:
            lines += ["", _escaped(note)]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """For a spreadsheet: exact values, not what is shown; bounds have columns; a name never becomes a formula."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        columns, rows = self._exact()
        writer.writerow([_inert(name) for name in columns])
        for row in rows:
            writer.writerow([_inert(v) if isinstance(v, str) else "" if v is None else repr(v) for v in row])
        return out.getvalue()

    def json(self) -> str:
        """For a program: one object, in one line, with exact values."""
        columns, rows = self._exact()
        return json.dumps(
            {"name": self.name, "title": self.title, "columns": columns, "rows": rows, "notes": self.notes}
        )

    def _exact(self) -> tuple[list[str], list[list[Value]]]:
        bounded = [any(row.cells[i].low is not None for row in self.rows) for i in range(len(self.columns))]
        columns: list[str] = []
        for name, wide in zip(self.columns, bounded, strict=True):
            columns += [name, f"{name} low", f"{name} high"] if wide else [name]
        rows: list[list[Value]] = []
        for row in self.rows:
            line: list[Value] = []
            for cell, wide in zip(row.cells, bounded, strict=True):
                value = cell.text if cell.value is None else cell.value
                line += [value, cell.low, cell.high] if wide else [value]
            rows.append(line)
        return columns, rows


def tabulate(
    name: str,
    title: str,
    items: Iterable[T],
    columns: Mapping[str, Callable[[T], Cell]],
    *,
    notes: Sequence[str] = (),
    soup: Callable[[T], str | None] = lambda item: None,
    ours: Callable[[T], bool] = lambda item: False,
) -> Table:
    """A line for each item, by what each column shows of it."""
    rows = [
        Row(cells=tuple(show(item) for show in columns.values()), soup=soup(item), ours=ours(item)) for item in items
    ]
    return Table(name=name, title=title, columns=tuple(columns), rows=tuple(rows), notes=tuple(notes))


def text(value: object) -> Cell:
    """A name or a sentence; a dash where there is none."""
    return Cell(text=MISSING if value is None or value == "" else str(value))


def number(
    value: float | None,
    form: str | Callable[[float], str] = ",",
    *,
    low: float | None = None,
    high: float | None = None,
) -> Cell:
    """A number as `form` writes it, with its interval in brackets; a dash where there is none."""
    write: Callable[[float], str] = form if callable(form) else lambda v: f"{v:{form}}".replace("-", "−", 1)
    if value is None:
        return Cell(text=MISSING)
    bounds = "" if low is None or high is None else f" [{write(low)}, {write(high)}]"
    return Cell(text=write(value) + bounds, value=value, low=low, high=high)


def pairs_table(name: str, title: str, pairs: Sequence[tuple[str, str]], *notes: str) -> Table:
    """Names and values."""
    return tabulate(name, title, pairs, {"name": lambda p: text(p[0]), "value": lambda p: text(p[1])}, notes=notes)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _marked(cell: Cell) -> str:
    shown = _escaped(cell.text)
    if cell.best:
        return f"**{shown}**"
    return f"{shown} ≈" if cell.in_noise else shown


def _escaped(shown: str) -> str:
    """Markdown readers take HTML: a name stays a name. A bracket that no link could follow stays as it is."""
    marks = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("\n", " "), ("](", "\\]("), ("`", "\\`"))
    for mark, safe in marks:
        shown = shown.replace(mark, safe)
    return shown


def _inert(shown: str) -> str:
    """Spreadsheets run what starts with these marks."""
    return "'" + shown if shown[:1] in ("=", "+", "@", "\t", "\r") or (shown[:1] == "-" and len(shown) > 1) else shown
