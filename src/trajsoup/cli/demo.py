"""`trajsoup demo`: a whole study on the embedded model and corpus, in a few minutes on two cores."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.console import show_json
from trajsoup.cli.scan import Json
from trajsoup.cli.study_output import Form, FormOption, StageLines, limited_instructions, paragraph, show_study
from trajsoup.cli.train import live
from trajsoup.study.file.presets import Preset


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make, or to go on with.")] = Path(
        "demo-output"
    ),
    preset: Annotated[
        Preset, typer.Option(help="quick: minutes; paper: the whole protocol; wsd: the smaller model.")
    ] = Preset.QUICK,
    seeds: Annotated[
        int | None, typer.Option(help="Repeat everything with other seeds.", min=1, show_default=False)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Branches trained at once. Default: one for each core.", min=1, show_default=False),
    ] = None,
    form: FormOption = Form.TERMINAL,
    as_json: Json = False,
) -> None:
    """Pretrain a tiny model, branch it, merge the branches in every way, and report what was seen on held-out text."""
    from trajsoup.study.file.presets import write_preset
    from trajsoup.study.file.study import load_setup
    from trajsoup.study.records.results import AnswerRecord, PlanRecord, SeedsRecord
    from trajsoup.study.run import run_study

    begin = time.monotonic()
    setup = load_setup(write_preset(preset, output, seeds=seeds))
    lines = StageLines()
    with limited_instructions(), live() as on_train:
        ran = run_study(setup, jobs=jobs, on_stage=lines.stage, on_train=on_train, on_score=lines.score)
    answer = ran.records.require(AnswerRecord)
    seeds_record = ran.records.read(SeedsRecord)
    words = answer.words if seeds_record is None else seeds_record.words
    if as_json:
        show_json({"words": words, "soup": ran.soup, "records": ran.records.folder})
        return
    show_study(ran.records, form)
    typer.echo(paragraph(words))
    size = ran.records.require(PlanRecord).total_params
    typer.echo(f"\nA model of {size:,} parameters: the method at work, not evidence about large models.")
    report = _write_report(setup.output)
    typer.echo(
        f"{time.monotonic() - begin:.0f} seconds; soup: {ran.soup}; report: {report or '-'}; records: {ran.records.folder}"
    )
    typer.echo(f"next: trajsoup verify {ran.soup}; trajsoup sweep {setup.path}")


def _write_report(folder: Path) -> Path | None:
    """The page of the study; None where the libraries for it are not installed."""
    from trajsoup.errors import TrajsoupError
    from trajsoup.report.reading import read_contents
    from trajsoup.report.writing import NEEDED, require_libraries, write_report

    try:
        require_libraries(NEEDED)
    except TrajsoupError as error:
        typer.echo(f"no report: {error}", err=True)
        return None
    return write_report(read_contents(folder), folder / "report", images=False).page
