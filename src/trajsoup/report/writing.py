"""The report on disk: one HTML file, the same tables as Markdown and CSV, each figure as SVG and PNG.

<folder>/report.html, tables.md, tables/<name>.csv, figures/<name>.svg, figures/<name>.png
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trajsoup.errors import ReportError, install
from trajsoup.report.export import HOW_TO_GET_ONE, export_figures, find_browser
from trajsoup.report.page import page_parts, render_page
from trajsoup.report.sections import make_sections
from trajsoup.report.study import open_study
from trajsoup.store.confined import inside
from trajsoup.store.publish import write_atomic

NEEDED = ("plotly", "jinja2")
SERVING = ("starlette", "uvicorn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written."""

    page: Path
    page_bytes: int
    tables: int
    figures: int  # in the page
    images: int  # files
    notes: tuple[str, ...] = ()


def require_libraries(names: Sequence[str]) -> None:
    """Refuse early where the extra is not installed."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ReportError(f"a report needs {', '.join(missing)}: install the extra with `{install('report')}`")


def write_report(study: Path | str, folder: Path | str | None = None, *, images: bool = True) -> Written:
    """Write the page, tables and figures of a study's folder, by default into its report/.

    Without a browser everything but the images is written, and it says so.

    >>> write_report("study", images=False).page  # doctest: +SKIP
    """
    require_libraries(NEEDED)
    records = open_study(Path(study))
    folder = inside(records.study, "report") if folder is None else Path(folder)
    made = make_sections(records)
    text = render_page(records, parts=page_parts(records, made=made))
    page = folder / "report.html"
    write_atomic(page, text)
    tables = [table for shown in made for table in shown.content.every_table]
    for table in tables:
        write_atomic(inside(folder, f"tables/{table.name}.csv"), table.csv())
    write_atomic(folder / "tables.md", "\n".join(table.markdown() for table in tables))
    figures = [figure for shown in made for figure in shown.content.figures]
    written: tuple[Path, ...] = ()
    notes: list[str] = []
    if images:
        browser = find_browser()
        if browser is None:
            notes.append(f"no SVG and PNG of the figures, since no browser was found: {HOW_TO_GET_ONE}")
        else:
            written = export_figures(figures, inside(folder, "figures"), browser=browser)
    return Written(
        page=page,
        page_bytes=len(text.encode()),
        tables=len(tables),
        figures=len(figures),
        images=len(written),
        notes=tuple(notes),
    )
