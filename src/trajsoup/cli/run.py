"""`trajsoup run`: every stage of a study, or what is left of it, and its report."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import say, show_json, show_notes
from trajsoup.cli.options import (
    Address,
    Engine,
    EngineOption,
    Form,
    FormOption,
    Jobs,
    Json,
    Study,
    chosen_executor,
    limited_instructions,
    study_file,
)
from trajsoup.cli.study_output import StageLines, show_answer, show_study
from trajsoup.cli.train import live
from trajsoup.core.quantity import format_bytes

if TYPE_CHECKING:
    from trajsoup.study.file.study import Setup


class Emit(StrEnum):
    """Batch systems that scripts can be written for."""

    SLURM = "slurm"


def run(
    study: Study,
    jobs: Jobs = None,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    emit: Annotated[
        Emit | None,
        typer.Option(help="Write job scripts for a batch system instead of running.", show_default=False),
    ] = None,
    form: FormOption = Form.TERMINAL,
    as_json: Json = False,
) -> None:
    """Plan, train, validate, screen, select, blend, evaluate, report. Goes on where it was; existing runs are not trained."""
    from trajsoup.study.file.study import load_study

    setup = load_study(study_file(study))
    if emit is not None:
        from trajsoup.study.train.slurm import write_scripts

        folder = write_scripts(setup)
        if as_json:
            show_json({"scripts": folder})
            return
        say(f"scripts written to {folder}; adapt the #SBATCH lines to your cluster, then: sh {folder}/submit.sh")
        return
    run_and_show(setup, jobs=jobs, engine=engine, address=address, form=form, as_json=as_json)


def run_and_show(
    setup: Setup, *, jobs: int | None, engine: Engine, address: str | None, form: Form, as_json: bool, remark: str = ""
) -> None:
    """Run a study to its end, write its report, print its tables and what was seen, and say what to do next."""
    from trajsoup.study.records.answer import AnswerRecord
    from trajsoup.study.records.plan import PlanRecord
    from trajsoup.study.records.seeds import SeedsRecord
    from trajsoup.study.run import run_study
    from trajsoup.study.train.saved import resumable_bytes

    begin = time.monotonic()
    lines = StageLines()
    with limited_instructions(), live() as on_train, chosen_executor(engine, address) as executor:
        ran = run_study(
            setup, jobs=jobs, on_stage=lines.stage, on_train=on_train, on_score=lines.score, executor=executor
        )
    over_seeds = ran.records.read(SeedsRecord)
    words = ran.records.require(AnswerRecord).words if over_seeds is None else over_seeds.words
    page = _write_report(setup.output)
    if as_json:
        show_json({"made": ran.made, "soup": ran.soup, "records": ran.records.folder, "report": page, "words": words})
        return
    if form is Form.TERMINAL:
        show_answer(ran.records)
    else:
        show_study(ran.records, form)
        say(" ".join(words))
    show_notes(ran.records.require(PlanRecord).notes)
    if remark:
        say(f"\n{remark}")
    soup = ran.soup or "- (the records of the study are here, its models are not)"
    say(f"\nsoup:    {soup}\nreport:  {page or '-'}\nrecords: {ran.records.folder}")
    if kept := resumable_bytes(setup.output):
        what = "a longer horizon goes on from them, else delete them"
        say(f"kept:    {format_bytes(kept)} in branches/*/resume-state-*: {what}")
    say(f"{time.monotonic() - begin:.0f} seconds")
    commands = [] if ran.soup is None else [f"trajsoup verify {ran.soup}"]
    say(f"next: {'; '.join([*commands, f'trajsoup sweep {setup.path}', f'trajsoup serve {setup.path}'])}")


def _write_report(folder: Path) -> Path | None:
    """The page of the study; None where the libraries for it are not installed."""
    from trajsoup.errors import TrajsoupError
    from trajsoup.report.writing import NEEDED, require_libraries, write_report

    try:
        require_libraries(NEEDED)
    except TrajsoupError as error:
        say(f"no report: {error}", err=True)
        return None
    return write_report(folder, images=False).page
