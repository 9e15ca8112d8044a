"""`trajsoup status`: how far a study is, and what it found so far."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.console import show_json, show_table
from trajsoup.cli.options import Json, Study, study_file, study_folder


def status(
    study: Study,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the study until it is done.")] = False,
) -> None:
    """Show how far a study is: stages, branches and the answer; with a study file, also what each stage waits for."""
    folder = study_folder(study)
    if watch:
        from trajsoup.cli.overview import watch as follow

        follow(folder)
        return
    if study.is_dir() and not as_json:
        _overview(folder)
        return
    from trajsoup.study.file.study import load_study
    from trajsoup.study.records.files import FOLDER
    from trajsoup.study.status import stages_of

    found = stages_of(load_study(study_file(study)))
    if as_json:
        show_json([{"seed": s.seed, "stage": s.stage, "state": s.state, "detail": s.detail} for s in found])
        return
    rows = [["-" if s.seed is None else str(s.seed), s.stage, s.state, s.detail] for s in found]
    show_table(f"{study}", ["seed", "stage", "state", "detail"], rows)
    if (folder / FOLDER).is_dir():
        _overview(folder)


def _overview(folder: Path) -> None:
    from rich.console import Console

    from trajsoup.cli.overview import overview
    from trajsoup.report.study import open_study

    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False, emoji=False).print(overview(open_study(folder)))
