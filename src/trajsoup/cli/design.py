"""`trajsoup design`: which recipes to branch with, from short probes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import say, show_json, show_notes, show_table
from trajsoup.cli.options import (
    Address,
    Engine,
    EngineOption,
    Jobs,
    Json,
    Study,
    chosen_executor,
    limited_instructions,
    study_file,
)
from trajsoup.cli.study_output import StageLines
from trajsoup.cli.train import live

if TYPE_CHECKING:
    from trajsoup.study.records.design import ProbedRecipe


def design(
    study: Study,
    branches: Annotated[
        int | None,
        typer.Option(min=2, help="Recipes to pick. Default: as many as the study has branches.", show_default=False),
    ] = None,
    length: Annotated[
        str, typer.Option(help="Length of a probe, as a share of the horizon, rounded to whole steps.")
    ] = "5%",
    propose: Annotated[
        bool,
        typer.Option("--propose/--no-propose", help="Besides the study's branches, try recipes around the baseline."),
    ] = True,
    jobs: Jobs = None,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Train short probes of candidate recipes, pick those whose average gains most, write a study that runs them."""
    from trajsoup.core.quantity import format_tokens, parse_share
    from trajsoup.study.design.answer import design_study
    from trajsoup.study.file.study import load_training_study

    share = parse_share(length, where="--length")
    setup = load_training_study(study_file(study))
    with live() as on_progress, limited_instructions(), chosen_executor(engine, address) as executor:
        done = design_study(
            setup,
            n_branches=branches,
            share=share,
            propose=propose,
            jobs=jobs,
            on_train=on_progress,
            on_score=StageLines().score,
            on_length=lambda words: show_notes([words]),
            executor=executor,
        )
    record = done.record
    if as_json:
        show_json({**dataclasses.asdict(record), "study_file": done.study_file})
        return
    show_table(
        f"probes of {format_tokens(record.probe_tokens)} of {format_tokens(record.horizon)} tokens, {record.split} split, "
        f"{record.documents:.0f} effective documents (* picked)",
        ["recipe", "changes", "loss", "gap", "gap, other order", "rho", "useful", "cosine", "J", "J at the horizon"],
        [_line(recipe) for recipe in record.recipes],
    )
    for sentence in record.words:
        say(sentence)
    if record.gap_and_cosine is not None:
        say(f"Gaps and angles of the probes rank pairs alike to {record.gap_and_cosine:+.2f}; angles need no scoring.")
    say(f"{record.same_pick:.0%} of draws of the documents pick the same recipes.")
    for doubt in record.doubts:
        say(f"Do not trust it far: {doubt}.")
    say(f"wrote {done.study_file}; next: trajsoup run {done.study_file}")


def _line(recipe: ProbedRecipe) -> list[str | int | float | None]:
    changes = ", ".join(f"{name} {value}" for name, value in recipe.changes.items())
    gap = None if recipe.gap is None else f"{recipe.gap:.4f} ± {recipe.gap_error or 0:.4f}"
    expected = (
        None if recipe.expected_loss_gap is None else f"{recipe.expected_loss_gap:+.2%} ± {recipe.expected_error:.2%}"
    )
    return [
        ("* " if recipe.picked else "") + recipe.name + (f" (x{recipe.picked})" if recipe.picked > 1 else ""),
        recipe.left_out or changes or "baseline",
        None if recipe.loss is None else f"{recipe.loss:+.4f}",
        gap,
        recipe.gap_other,
        None if recipe.decorrelation is None else f"{recipe.decorrelation:.2f}",
        None if recipe.usefulness is None else f"{recipe.usefulness:+.4f}",
        None if recipe.cosine is None else f"{recipe.cosine:.3f}",
        None if recipe.loss_gap is None else f"{recipe.loss_gap:+.2%}",
        expected,
    ]
