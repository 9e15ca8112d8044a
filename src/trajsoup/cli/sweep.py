"""`trajsoup sweep`: comparisons of the paper on a study that has been run."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from trajsoup.cli.console import show_json
from trajsoup.cli.options import (
    Address,
    Engine,
    EngineOption,
    Form,
    FormOption,
    Json,
    Study,
    chosen_executor,
    limited_instructions,
    study_file,
)
from trajsoup.cli.study_output import StageLines, show


def sweep(
    study: Study,
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help="Sweeps of the study file, or any other by its name. Default: all of the file.", show_default=False
        ),
    ] = None,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    form: FormOption = Form.TERMINAL,
    as_json: Json = False,
) -> None:
    """Score all rows of the sweeps in one read of the checkpoints; choose on validation, report on test."""
    from trajsoup.errors import StudyError
    from trajsoup.report.sections.ablations import sweep_table
    from trajsoup.study.file.study import load_study
    from trajsoup.study.file.sweeps import parse_sweeps
    from trajsoup.study.records.files import Records
    from trajsoup.study.records.sweeps import SweepRecord
    from trajsoup.study.run import run_sweeps
    from trajsoup.study.sweeps import SWEEPS

    setup = load_study(study_file(study))
    declared = {s.name: s for s in setup.sweeps}
    known = {s.name: s for s in parse_sweeps(list(SWEEPS), where="")} | declared
    if unknown := [n for n in name or () if n not in known]:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise StudyError(f"there is no sweep {unknown[0]!r}: use {', '.join(known)}{meant}")
    wanted = [known[n] for n in name] if name else list(declared.values()) or list(parse_sweeps("paper", where=""))
    with limited_instructions(), chosen_executor(engine, address) as executor:
        made = run_sweeps(setup, wanted, on_score=StageLines().score, executor=executor)
    records = Records(setup.output)
    if as_json:
        show_json({"made": made, "records": [records.path(SweepRecord, s.name) for s in wanted]})
        return
    for s in wanted:
        show(sweep_table(records.require(SweepRecord, s.name)), form)
