"""`trajsoup merge`: scan, screen, select, blend and document in one go."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import progress_bar, say, show_json, show_notes
from trajsoup.cli.merge_given import AUTO, given_k, known_in, named_row, pairs, quantity, refuse, short_dtype
from trajsoup.cli.merge_shown import show_left_out, show_plan, show_row, show_screen
from trajsoup.cli.options import (
    FORMAT_HELP,
    Address,
    AllowUrl,
    Engine,
    EngineOption,
    ForkPoint,
    Json,
    Metric,
    TokensPerStep,
    Validation,
    chosen_executor,
    of_runs,
)
from trajsoup.core.coefficients import EQUAL, WEIGHTINGS
from trajsoup.core.methods.table import METHODS
from trajsoup.core.quantity import format_bytes, parse_bytes, parse_tokens
from trajsoup.core.selection import SELECTIONS
from trajsoup.core.signal import Signal
from trajsoup.core.window import parse_window
from trajsoup.store.digest import Algorithm
from trajsoup.store.remote import place

if TYPE_CHECKING:
    from trajsoup.core.methods.asking import Descending, Scoring
    from trajsoup.merge.branches import Branches


class OutputFormat(StrEnum):
    """What the soup is written as."""

    SAFETENSORS = "safetensors"
    SAME = "same"


class LoraOption(StrEnum):
    """What to do with adapters."""

    MERGE = "merge"


def _parameters() -> str:
    """What there is, for --help."""
    listed = (f"{m.name}: {', '.join(map(str, m.parameters))}" for m in METHODS.values() if m.parameters)
    return "; ".join(listed) + "."


def merge(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Run folders; plain checkpoints, for their mean; one study file (YAML), one soup file (YAML), or "
            "CKPT=WEIGHT for each ingredient. Folders and checkpoints may be URLs (s3://, gs://, hf://).",
            show_default=False,
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="The folder or URL to make. It must not exist.", show_default=False),
    ] = None,
    k: Annotated[
        str,
        of_runs(
            help="Checkpoints per branch. auto: as many as lie, on average, within a percent of the best loss, sixteen "
            "in all at most; with "
            "--validation, the K whose merge validates best.",
            metavar="K",
        ),
    ] = AUTO,
    strategy: Annotated[
        str | None,
        of_runs(
            "--method",
            "--strategy",
            help=f"The method: {', '.join(METHODS)}. Default: trajectory-soup, or what --select defines.",
            metavar="NAME",
            callback=known_in(METHODS),
            show_default=False,
        ),
    ] = None,
    select: Annotated[
        str | None,
        of_runs(
            help=f"Which checkpoints enter: {', '.join(SELECTIONS)}. Default: what the method says.",
            metavar="NAME",
            callback=known_in(SELECTIONS),
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        str,
        of_runs(
            help=f"Weights inside a branch: {', '.join(WEIGHTINGS)}.", metavar="NAME", callback=known_in(WEIGHTINGS)
        ),
    ] = EQUAL,
    window: Annotated[
        str | None,
        of_runs(
            help="The end of each branch, for methods that look at it: so many checkpoints (10), or tokens (500B).",
            show_default=False,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        of_runs(help=f"A parameter of the method; may be repeated. {_parameters()}", metavar="NAME=VALUE"),
    ] = None,
    rank_by: Annotated[Signal, of_runs(help="The validation signal that ranks checkpoints.")] = Signal.LOSS,
    horizon: Annotated[
        str | None,
        of_runs(
            help="Ignore checkpoints after so many tokens (suffix k, M, B, T); steps, where no tokens are known.",
            show_default=False,
        ),
    ] = None,
    branch: Annotated[str | None, of_runs(help="The branch of single-merge.", show_default=False)] = None,
    validation: Validation = None,
    screen: Annotated[bool, of_runs("--screen/--no-screen", help="Admit only branches close to the baseline.")] = True,
    tolerance: Annotated[
        float | None, of_runs(help="Largest relative training-loss gap (0.01).", show_default=False)
    ] = None,
    baseline: Annotated[
        str | None,
        of_runs(help="Branch to compare with; default: the one of median training loss.", show_default=False),
    ] = None,
    force: Annotated[
        list[str] | None,
        of_runs(help="Admit this branch whatever the screen says; may be repeated.", metavar="BRANCH"),
    ] = None,
    fork_point: ForkPoint = None,
    tokens_per_step: TokensPerStep = None,
    metric: Metric = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Divide explicit weights by their sum.")] = False,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Convert floating tensors: bf16, fp16, fp32 or fp64.", callback=short_dtype, show_default=False
        ),
    ] = None,
    shard_size: Annotated[
        str | None,
        typer.Option(help="Write shards of at most this size (5GB); default: as the input.", show_default=False),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="A Hugging Face folder whose tensor names, config and tokenizer the soup gets, for ingredients of another "
            "framework.",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            help="Rules for the names of tensors (YAML), where the framework is not known here.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[OutputFormat, typer.Option("--format", help=FORMAT_HELP)] = OutputFormat.SAFETENSORS,
    state_from: Annotated[
        str | None,
        typer.Option(
            help="With --format same: checkpoint whose optimizer, schedulers and counters the output gets.",
            metavar="CKPT",
            show_default=False,
        ),
    ] = None,
    lora: Annotated[
        LoraOption | None,
        typer.Option(
            help="The ingredients are LoRA adapters of PEFT: merge each into its base (--fork-point, or what its config "
            "names) and average there.",
            show_default=False,
        ),
    ] = None,
    exact_from: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint to copy integer tensors from, if they differ.", metavar="CKPT", show_default=False
        ),
    ] = None,
    allow_url: AllowUrl = None,
    digest: Annotated[Algorithm, typer.Option(help="How ingredients are hashed.")] = Algorithm.BLAKE3,
    no_hash: Annotated[bool, typer.Option("--no-hash", help="Hash neither ingredients nor output: faster.")] = False,
    rehash: Annotated[
        bool, typer.Option("--rehash", help="Hash ingredients even if their digests are known from an earlier merge.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")] = False,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Average checkpoints into one model: an ordinary Hugging Face folder with its provenance."""
    from trajsoup.merge.branches import read_branches
    from trajsoup.merge.choice import Choice
    from trajsoup.merge.make import make_soup
    from trajsoup.merge.plan import OutputForm, plan_row, plan_soup, require_output
    from trajsoup.store.known_digests import FILE, KnownDigests
    from trajsoup.study.cache import cache_folder

    if output is None and not dry_run:
        raise typer.BadParameter("say where the soup goes: -o OUT (or --dry-run)", param_hint="--output")
    if not screen:
        refuse(context, ("tolerance", "baseline", "force"), "say how to screen, and --no-screen says not to")
    same = output_format is OutputFormat.SAME
    if same:
        refuse(context, ("like", "names"), "rename tensors, and --format same keeps the trainer's names")
    else:
        refuse(context, ("state_from",), "puts a trainer's state beside the weights, which --format same alone writes")
    choice = Choice(
        strategy=strategy,
        k=given_k(k),
        select=select,
        coefficients=weights,
        window=quantity("--window", window, parse_window),
        params=pairs(param or ()),
        rank_by=rank_by,
        horizon=quantity("--horizon", horizon, parse_tokens),
        branch=branch,
        screened=screen,
        baseline=baseline,
        tolerance=tolerance,
        force=tuple(force or ()),
    )
    form = OutputForm(
        dtype=dtype,
        shard_bytes=quantity("--shard-size", shard_size, parse_bytes),
        exact_from=exact_from,
        like=like,
        names=names,
        same_format=same,
        state_from=state_from,
        lora=lora is not None,
    )
    named = named_row(context, inputs, normalize=normalize, allow_urls=allow_url or ())
    if named is not None:
        row, own_fork_point = named
        plan = plan_row(row, fork_point=own_fork_point if fork_point is None else fork_point, form=form)
    else:
        runs = [place(text) for text in inputs]
        study = read_branches(runs, fork_point=fork_point, tokens_per_step=tokens_per_step, metric=metric)
        with _answering(validation or (), study, lora=form.lora) as (scoring, descending):
            plan = plan_soup(study, choice, form=form, scoring=scoring, descending=descending)
    if dry_run:
        if output is not None:
            require_output(plan, output)
        show_plan(plan, output, as_json=as_json)
        return
    assert output is not None
    if not as_json:
        show_screen(plan)
        show_notes(plan.notes)
    with chosen_executor(engine, address) as executor, progress_bar("blending", plan.read_bytes) as progress:
        provenance = make_soup(
            plan,
            output,
            digest=None if no_hash else digest,
            known=None if rehash else KnownDigests(cache_folder() / FILE),
            executor=executor,
            progress=progress,
        )
    if as_json:
        show_json({"output": output, **provenance.record()})
        return
    show_row(plan)
    show_left_out(plan)
    say(f"soup written to {output} ({format_bytes(plan.layout.nbytes)}); check it: trajsoup verify {output}")


@contextlib.contextmanager
def _answering(
    documents: Sequence[Path], study: Branches, *, lora: bool
) -> Iterator[tuple[Scoring | None, Descending | None]]:
    """Who answers methods that ask for scores (None: the logs of the runs) and for gradients."""
    if not documents:
        yield None, None
        return
    from trajsoup.cli.options import limited_instructions
    from trajsoup.cli.study_output import StageLines
    from trajsoup.study.score.documents import scoring_on

    with limited_instructions(), scoring_on(documents, study, progress=StageLines().score, lora=lora) as answers:
        yield answers
