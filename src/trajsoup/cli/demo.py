"""`trajsoup demo`: a whole study on the embedded model and corpus, in a few minutes on two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.options import Address, Engine, EngineOption, Form, FormOption, Jobs, Json
from trajsoup.cli.run import run_and_show


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make, or to go on with.")] = Path(
        "demo-output"
    ),
    preset: Annotated[
        str,
        typer.Option(
            help="quick: minutes; paper: the whole protocol; wsd: a decaying learning rate; neighbours: the methods of "
            "others; dense: a dense model, and Branch-Train-MiX."
        ),
    ] = "quick",
    seeds: Annotated[
        int | None, typer.Option(help="Repeat everything with other seeds.", min=1, show_default=False)
    ] = None,
    jobs: Jobs = None,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    form: FormOption = Form.TERMINAL,
    as_json: Json = False,
) -> None:
    """Branch a small pretrained model, merge the branches in every way, and report what was seen on held-out text."""
    from trajsoup.cli.options import require_torch
    from trajsoup.study.file.presets import Preset, write_preset
    from trajsoup.study.file.study import load_study

    require_torch("the demo trains")
    if preset not in tuple(Preset):
        raise typer.BadParameter(f"{preset!r} is not {', '.join(Preset)}", param_hint="--preset")
    run_and_show(
        load_study(write_preset(Preset(preset), output, seeds=seeds)),
        jobs=jobs,
        engine=engine,
        address=address,
        form=form,
        as_json=as_json,
        remark="A small model: the method at work, not evidence about large models.",
    )
