"""`trajsoup doctor`: will these runs average well?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import progress_bar, say, show_json, show_notes, show_table
from trajsoup.cli.options import Address, Engine, EngineOption, ForkPoint, Json, Metric, TokensPerStep, chosen_executor
from trajsoup.store.remote import place

if TYPE_CHECKING:
    from trajsoup.core.pair_gain import Relation


def doctor(
    inputs: Annotated[
        list[str], typer.Argument(metavar="RUN_DIR", help="Run folders, or one study file.", show_default=False)
    ],
    fork_point: ForkPoint = None,
    tokens_per_step: TokensPerStep = None,
    metric: Metric = None,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Say before any merge whether these runs will average well. Exits with 1 if a branch must be left out."""
    from dataclasses import asdict

    from trajsoup.merge.branches import read_branches
    from trajsoup.merge.doctor import examine, pass_bytes, study_folder

    places = [place(text) for text in inputs]
    study = read_branches(places, fork_point=fork_point, tokens_per_step=tokens_per_step, metric=metric)
    folder = study_folder(places)
    with progress_bar("reading", pass_bytes(study)) as progress, chosen_executor(engine, address) as executor:
        result = examine(study, folder=folder, relation=_measured(folder), executor=executor, progress=progress)
    if as_json:
        show_json({"healthy": result.healthy, **asdict(result)})
    else:
        rows = []
        for b in result.branches:
            c, v = b.closeness, b.verdict
            rows.append(
                [
                    b.name,
                    b.checkpoints,
                    c.cosine if c else None,
                    c.relative_distance if c else None,
                    c.displacement_cosine if c else None,
                    v.gap if v else "-",
                    b.outlook.value,
                ]
            )
        columns = ["branch", "checkpoints", "cosine", "distance", "direction", "loss gap J", "outlook"]
        show_table(f"Against {result.reference}", columns, rows)
        say(
            "cosine and distance: of the weights, to the reference. direction: cosine between the way the branch went and "
            "the way the baseline went; 1 is the same way, 0 unrelated. J: how far the training loss is above "
            "the baseline's."
        )
        for b in result.branches:
            for reason in b.reasons:
                say(f"{b.name}: {reason}")
        if result.pairs:
            show_table(
                "Pairs worth merging, most promising first",
                ["first", "second", "cosine", "expected pair gain"],
                [[p.first, p.second, p.cosine, p.gain] for p in result.pairs],
            )
            say(f"Pairs are ordered {result.pairs_by}")
        show_notes(result.notes)
    if not result.healthy:
        raise typer.Exit(1)


def _measured(folder: Path | None) -> Relation | None:
    """The line of gain against cosine that a study of these runs found."""
    from trajsoup.study.records.files import Records
    from trajsoup.study.records.geometry import GeometryRecord

    record = None if folder is None else Records(folder).read(GeometryRecord)
    return None if record is None else record.relation
