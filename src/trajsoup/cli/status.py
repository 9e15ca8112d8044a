"""`trajsoup status`: which records of a study exist, and what is left."""

from __future__ import annotations

from typing import Annotated

import typer

from trajsoup.cli.console import show_json, show_table
from trajsoup.cli.plan import StudyFile
from trajsoup.cli.scan import Json


def status(
    study: StudyFile,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the study until it is done.")] = False,
) -> None:
    """List the stages of a study: done, or still to do. With --watch: stages, branches and the answer, live."""
    from trajsoup.study.setup import load_setup
    from trajsoup.study.status import stages_of

    setup = load_setup(study)
    if watch:
        from trajsoup.cli.overview import watch as follow

        follow(setup.output)
        return
    found = stages_of(setup)
    if as_json:
        show_json([{"seed": s.seed, "stage": s.stage, "state": s.state, "detail": s.detail} for s in found])
        return
    rows = [["-" if s.seed is None else str(s.seed), s.stage, s.state, s.detail or ""] for s in found]
    show_table(f"{study}", ["seed", "stage", "state", "detail"], rows)
