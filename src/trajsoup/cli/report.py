"""`trajsoup report`: a page to look at, its tables and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.console import show_notes
from trajsoup.core.quantity import format_bytes

StudyPlace = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The study file (YAML), or the study's folder.", show_default=False)
]


def report(
    study: StudyPlace,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write. Default: report/ in the study.", show_default=False),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images/--no-images", help="Also write each figure as SVG and PNG; needs a chromium.")
    ] = True,
) -> None:
    """Write one self-contained HTML page, the same tables as Markdown and CSV, and each figure as SVG and PNG."""
    from trajsoup.report.reading import read_contents
    from trajsoup.report.writing import NEEDED, require_libraries, write_report

    require_libraries(NEEDED)
    folder = study_folder(study)
    written = write_report(read_contents(folder), output or folder / "report", images=images)
    typer.echo(f"{written.page} ({format_bytes(written.page_bytes)})")
    typer.echo(f"{written.figures} figures, {written.tables} tables, {written.images} image files")
    show_notes(written.notes)


def study_folder(study: Path) -> Path:
    """The folder that holds records/: the one named, or the one that the study file writes to."""
    if study.is_dir():
        return study
    from trajsoup.study.file.study import load_setup

    return load_setup(study).output
