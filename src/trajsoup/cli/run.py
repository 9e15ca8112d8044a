"""`trajsoup run`: every stage of a study, or what is left of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from trajsoup.cli.console import show_json
from trajsoup.cli.engine import Address, Engine, EngineOption, chosen_executor
from trajsoup.cli.plan import StudyFile
from trajsoup.cli.scan import Json
from trajsoup.cli.study_output import Form, FormOption, StageLines, limited_instructions, paragraph, show_study
from trajsoup.cli.train import live


class Emit(StrEnum):
    """Batch systems that scripts can be written for."""

    SLURM = "slurm"


def run(
    study: StudyFile,
    jobs: Annotated[
        int | None,
        typer.Option(help="Branches trained at once. Default: one for each core.", min=1, show_default=False),
    ] = None,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    emit: Annotated[
        Emit | None,
        typer.Option(help="Write job scripts for a batch system instead of running.", show_default=False),
    ] = None,
    form: FormOption = Form.TERMINAL,
    as_json: Json = False,
) -> None:
    """Plan, train, validate, screen, select, blend, evaluate. Goes on where it was; runs that exist are not trained."""
    from trajsoup.study.file.study import load_setup
    from trajsoup.study.records.results import AnswerRecord
    from trajsoup.study.run import run_study

    setup = load_setup(study)
    if emit is not None:
        from trajsoup.study.train.slurm import write_scripts

        folder = write_scripts(setup)
        typer.echo(f"scripts written to {folder}; adapt the #SBATCH lines to your cluster, then: sh {folder}/submit.sh")
        return
    lines = StageLines()
    with limited_instructions(), live() as on_train, chosen_executor(engine, address) as executor:
        ran = run_study(
            setup, jobs=jobs, on_stage=lines.stage, on_train=on_train, on_score=lines.score, executor=executor
        )
    answer = ran.records.require(AnswerRecord)
    if as_json:
        show_json({"made": ran.made, "soup": ran.soup, "records": ran.records.folder, "words": answer.words})
        return
    show_study(ran.records, form)
    typer.echo(paragraph(answer.words))
    typer.echo(f"\nsoup: {ran.soup}\nrecords: {ran.records.folder}")
