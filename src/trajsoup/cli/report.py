"""`trajsoup report`: a page to look at, its tables and its figures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.console import say, show_json, show_notes
from trajsoup.cli.options import Json, Study, study_folder
from trajsoup.core.quantity import format_bytes


def report(
    study: Study,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write. Default: report/ in the study.", show_default=False),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images/--no-images", help="Also write each figure as SVG and PNG; needs a chromium.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page, the same tables as Markdown and CSV, and each figure as SVG and PNG."""
    from trajsoup.report.writing import NEEDED, require_libraries, write_report

    require_libraries(NEEDED)
    folder = study_folder(study)
    written = write_report(folder, output, images=images)
    if as_json:
        show_json(dataclasses.asdict(written))
        return
    say(f"{written.page} ({format_bytes(written.page_bytes)})")
    say(f"{written.figures} figures, {written.tables} tables, {written.images} image files")
    show_notes(written.notes)
