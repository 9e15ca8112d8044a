"""`trajsoup merge`: scan, screen, select, blend and document in one go."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trajsoup.cli.console import progress_bar, say, show_json, show_notes
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
)
from trajsoup.core.coefficients import EQUAL, WEIGHTINGS
from trajsoup.core.methods.table import METHODS
from trajsoup.core.quantity import format_bytes, parse_bytes, parse_tokens
from trajsoup.core.selection import SELECTIONS
from trajsoup.core.signal import Signal
from trajsoup.core.table import Table
from trajsoup.core.window import parse_window
from trajsoup.errors import StudyError
from trajsoup.store.digest import Algorithm
from trajsoup.store.remote import place

if TYPE_CHECKING:
    from trajsoup.core.methods.asking import Descending, Scoring
    from trajsoup.merge.branches import Branches
    from trajsoup.merge.choice import Choice
    from trajsoup.merge.plan import SoupPlan

T = TypeVar("T")

# What chooses among the checkpoints of runs, and says nothing where every ingredient is named with its weight.
_CHOOSING = (
    "k",
    "strategy",
    "select",
    "weights",
    "window",
    "param",
    "rank_by",
    "horizon",
    "branch",
    "validation",
    "screen",
    "tolerance",
    "baseline",
    "force",
    "tokens_per_step",
    "metric",
)
AUTO = "auto"
_SPELLINGS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
}
_EXPLICIT = re.compile(r"^(?P<path>.+)=(?P<weight>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)$")


class OutputFormat(StrEnum):
    """What the soup is written as."""

    SAFETENSORS = "safetensors"
    SAME = "same"


class LoraOption(StrEnum):
    """What to do with adapters."""

    MERGE = "merge"


def _named(table: Table[Any]) -> Callable[[str | None], str | None]:
    """Check a name against its table when the command runs: others may have added to it."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in table:
            raise typer.BadParameter(table.unknown(name))
        return name

    return check


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
        typer.Option(
            help="Checkpoints per branch. auto: the most whose members lie within what averaging wins back; with "
            "--validation, the K whose merge validates best.",
            metavar="K",
        ),
    ] = AUTO,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--method",
            "--strategy",
            help=f"The method: {', '.join(METHODS)}. Default: trajectory-soup, or what --select defines.",
            metavar="NAME",
            callback=_named(METHODS),
            show_default=False,
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help=f"Which checkpoints enter: {', '.join(SELECTIONS)}. Default: what the method says.",
            metavar="NAME",
            callback=_named(SELECTIONS),
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help=f"Weights inside a branch: {', '.join(WEIGHTINGS)}.", metavar="NAME", callback=_named(WEIGHTINGS)
        ),
    ] = EQUAL,
    window: Annotated[
        str | None,
        typer.Option(
            help="The end of each branch, for methods that look at it: so many checkpoints (10), or tokens (500B).",
            show_default=False,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help=f"A parameter of the method; may be repeated. {_parameters()}", metavar="NAME=VALUE"),
    ] = None,
    rank_by: Annotated[Signal, typer.Option(help="The validation signal that ranks checkpoints.")] = Signal.LOSS,
    horizon: Annotated[
        str | None,
        typer.Option(
            help="Ignore checkpoints after so many tokens (suffix k, M, B, T); steps, where no tokens are known.",
            show_default=False,
        ),
    ] = None,
    branch: Annotated[str | None, typer.Option(help="The branch of single-merge.", show_default=False)] = None,
    validation: Validation = None,
    screen: Annotated[
        bool, typer.Option("--screen/--no-screen", help="Admit only branches close to the baseline.")
    ] = True,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest relative training-loss gap (0.01).", show_default=False)
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Branch to compare with; default: the one of median training loss.", show_default=False),
    ] = None,
    force: Annotated[
        list[str] | None,
        typer.Option(help="Admit this branch whatever the screen says; may be repeated.", metavar="BRANCH"),
    ] = None,
    fork_point: ForkPoint = None,
    tokens_per_step: TokensPerStep = None,
    metric: Metric = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Divide explicit weights by their sum.")] = False,
    dtype: Annotated[
        str | None, typer.Option(help="Convert floating tensors: bf16, fp16, fp32 or fp64.", show_default=False)
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
    output_format: Annotated[
        OutputFormat,
        typer.Option("--format", help=FORMAT_HELP),
    ] = OutputFormat.SAFETENSORS,
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
    from trajsoup.merge.make import make_soup
    from trajsoup.merge.plan import require_output
    from trajsoup.store.known_digests import FILE, KnownDigests
    from trajsoup.study.cache import cache_folder

    if output is None and not dry_run:
        raise typer.BadParameter("say where the soup goes: -o OUT (or --dry-run)", param_hint="--output")
    if not screen:
        _refuse(context, ("tolerance", "baseline", "force"), "say how to screen, and --no-screen says not to")
    dtype = _SPELLINGS.get(dtype or "", dtype)
    if dtype not in (None, "bf16", "fp16", "fp32", "fp64"):
        raise typer.BadParameter(f"{dtype!r} is not bf16, fp16, fp32 or fp64", param_hint="--dtype")
    same = output_format is OutputFormat.SAME
    if same:
        _refuse(context, ("like", "names"), "rename tensors, and --format same keeps the trainer's names")
    else:
        _refuse(context, ("state_from",), "puts a trainer's state beside the weights, which --format same alone writes")
    from trajsoup.merge.choice import Choice

    choice = Choice(
        strategy=strategy,
        k=_given_k(k),
        select=select,
        coefficients=weights,
        window=_given("--window", window, parse_window),
        params=_pairs(param or []),
        rank_by=rank_by,
        horizon=_given("--horizon", horizon, parse_tokens),
        branch=branch,
        screened=screen,
        baseline=baseline,
        tolerance=tolerance,
        force=tuple(force or ()),
    )
    plan = _plan(
        context,
        inputs,
        choice,
        fork_point=fork_point,
        tokens_per_step=tokens_per_step,
        metric=metric,
        normalize=normalize,
        dtype=dtype,
        shard_bytes=_given("--shard-size", shard_size, parse_bytes),
        exact_from=exact_from,
        like=like,
        names=names,
        same_format=same,
        state_from=state_from,
        lora=lora is not None,
        validation=validation or [],
        allow_urls=allow_url or [],
    )
    if dry_run:
        if output is not None:
            require_output(plan, place(output))
        show_plan(plan, output, as_json=as_json)
        return
    assert output is not None
    if not as_json:
        show_screen(plan)
        show_notes(plan.notes)
    with chosen_executor(engine, address) as executor, progress_bar("blending", plan.read_bytes) as progress:
        provenance = make_soup(
            plan,
            place(output),
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


def _plan(
    context: typer.Context,
    inputs: list[str],
    choice: Choice,
    *,
    fork_point: str | None,
    tokens_per_step: int | None,
    metric: str | None,
    normalize: bool,
    dtype: str | None,
    shard_bytes: int | None,
    exact_from: str | None,
    like: str | None,
    names: Path | None,
    same_format: bool,
    state_from: str | None,
    lora: bool,
    validation: Sequence[Path],
    allow_urls: Sequence[str],
) -> SoupPlan:
    from trajsoup.merge.branches import read_branches
    from trajsoup.merge.plan import explicit_row, mean_row, plan_row, plan_soup
    from trajsoup.merge.soup_file import is_soup_file, load_soup_file

    # A run may be called lr=0.1: what exists under its whole name is that.
    explicit = [m for m in map(_EXPLICIT.match, inputs) if m and not Path(m[0]).exists()]
    if explicit and len(explicit) < len(inputs):
        raise typer.BadParameter("give every ingredient a weight (CKPT=WEIGHT), or none", param_hint="INPUT")
    yaml_file = Path(inputs[0]) if len(inputs) == 1 and inputs[0].endswith((".yaml", ".yml")) else None
    template = None if fork_point is None else place(fork_point)
    plain = _are_plain(context, inputs) if not explicit and yaml_file is None else False
    named = plain or bool(explicit) or (yaml_file is not None and is_soup_file(yaml_file))
    form: dict[str, Any] = {
        "dtype": dtype,
        "shard_bytes": shard_bytes,
        "exact_from": exact_from,
        "like": None if like is None else place(like),
        "names": names,
        "same_format": same_format,
        "state_from": None if state_from is None else place(state_from),
        "lora": lora,
    }
    if named:
        _refuse(context, _CHOOSING, "choose among the checkpoints of runs, and here every ingredient is named")
    else:
        _refuse(
            context, ("normalize",), "divides the weights of named ingredients, and a choice among runs sums to one"
        )
    if plain:
        row = mean_row(inputs)
    elif explicit:
        row = explicit_row([(m["path"], float(m["weight"])) for m in explicit], normalize=normalize)
    elif named:
        assert yaml_file is not None
        row, own_fork_point = load_soup_file(yaml_file, normalize=normalize, allow_urls=allow_urls)
        template = template or own_fork_point
    else:
        places = [place(text) for text in inputs]
        study = read_branches(places, fork_point=template, tokens_per_step=tokens_per_step, metric=metric)
        with _answering(validation, study) as (scoring, descending):
            return plan_soup(study, choice, scoring=scoring, descending=descending, **form)
    return plan_row(row, fork_point=template, **form)


def _are_plain(context: typer.Context, inputs: Sequence[str]) -> bool:
    """Whether several checkpoints are named, not runs. With an option that chooses, a folder of one checkpoint is a run."""
    from trajsoup.store.runs import is_one_checkpoint

    chosen = any(_was_given(context, name) for name in _CHOOSING)
    return len(inputs) > 1 and not chosen and all(is_one_checkpoint(text) for text in inputs)


def _given_k(text: str) -> int | None:
    if text == AUTO:
        return None
    if not (text.isdecimal() and len(text) < 10) or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is not a whole number of 1 or more, nor {AUTO}", param_hint="--k")
    return int(text)


@contextlib.contextmanager
def _answering(documents: Sequence[Path], study: Branches) -> Iterator[tuple[Scoring | None, Descending | None]]:
    """Who answers methods that ask for scores (None: the logs of the runs) and for gradients."""
    if not documents:
        yield None, None
        return
    from trajsoup.cli.options import limited_instructions
    from trajsoup.cli.study_output import StageLines
    from trajsoup.study.score.documents import scoring_on

    with limited_instructions(), scoring_on(documents, study, progress=StageLines().score) as answers:
        yield answers


def _refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Refuse options that were given and would have no effect."""
    given = [
        "/".join([p.opts[0], *p.secondary_opts])
        for p in context.command.params
        if p.name in names and _was_given(context, p.name)
    ]
    if given:
        raise typer.BadParameter(f"{why}: leave out {', '.join(given)}", param_hint=given)


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as they were written, each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or name in found:
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE, each name once", param_hint="--param")
        found[name] = value
    return found


def _given(option: str, text: str | None, parse: Callable[..., T]) -> T | None:
    """The quantity that an option gives. One that cannot be read is wrong usage."""
    try:
        return None if text is None else parse(text, where=option)
    except StudyError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
