"""`trajsoup status`: how far a study is, and what it found so far."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import show_json, show_table
from trajsoup.cli.options import Json, Study, study_file, study_folder

if TYPE_CHECKING:
    from trajsoup.study.status import StageState


def status(
    study: Study,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the study until it is done.")] = False,
) -> None:
    """Show how far a study is: stages, branches and the answer."""
    from trajsoup.study.records.files import FOLDER

    folder = study_folder(study)
    if watch and as_json:
        raise typer.BadParameter(
            "it follows a study for people; leave one of the two out", param_hint="--watch, --json"
        )
    if watch:
        from trajsoup.cli.overview import watch as follow

        follow(folder)
        return
    found = _stages(study, folder)
    if as_json:
        show_json([dataclasses.asdict(s) for s in found])
        return
    rows = [["-" if s.seed is None else str(s.seed), s.stage, s.state, s.detail] for s in found]
    show_table(f"{study}", ["seed", "stage", "state", "detail"], rows)
    if (folder / FOLDER).is_dir():
        _overview(folder)


def _stages(study: Path, folder: Path) -> Sequence[StageState]:
    """By the study's file, which knows what is asked for and has changed; of records without one, what they show."""
    from trajsoup.errors import StudyError
    from trajsoup.study.file.study import load_study
    from trajsoup.study.status import stages_of

    try:
        file = study_file(study)
    except StudyError:  # records alone
        from trajsoup.report.progress import branch_states, stage_states
        from trajsoup.report.study import open_study

        records = open_study(folder)
        return stage_states(records, branch_states(records))
    return stages_of(load_study(file))


def _overview(folder: Path) -> None:
    from rich.console import Console

    from trajsoup.cli.overview import overview
    from trajsoup.report.study import open_study

    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False, emoji=False).print(overview(open_study(folder)))
