"""`trajsoup plan`: what a study will train and cost, before it does."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trajsoup.cli.console import show_json, show_notes, show_table
from trajsoup.cli.options import Json, Study, limited_instructions, study_file
from trajsoup.core.quantity import format_bytes

if TYPE_CHECKING:
    from trajsoup.study.train.plan import Plan


def plan(
    study: Study,
    corpus: Annotated[
        bool, typer.Option("--corpus/--no-corpus", help="Tokenise the corpus, to count epochs and validation tokens.")
    ] = True,
    budget: Annotated[
        str | None,
        typer.Option(
            help="What there is to spend: how many branches, how long, which K, by what the finished "
            "study measured. 3e21FLOPs, 600B (tokens) or 2000USD."
        ),
    ] = None,
    accelerators: Annotated[int, typer.Option(min=1, help="With --budget: accelerators that there are.")] = 1,
    per_branch: Annotated[int | None, typer.Option(min=1, help="With --budget: accelerators of one branch.")] = None,
    flops_per_second: Annotated[float | None, typer.Option(help="With --budget: sustained by one accelerator.")] = None,
    usd_per_hour: Annotated[float | None, typer.Option(help="With --budget: of one accelerator.")] = None,
    usd_per_tb: Annotated[float, typer.Option(help="With --budget: of a terabyte of checkpoints.")] = 0.0,
    branch_overhead: Annotated[
        str | None, typer.Option(help="With --budget: tokens that starting a branch costs.")
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="With --budget: branches at most.")] = None,
    probe: Annotated[
        bool, typer.Option("--probe/--no-probe", help="Measure this machine for some seconds, once, to tell the time.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show branches, what they change, tokens, FLOPs, bytes, models scored and hours; refuse what cannot fit."""
    if budget is not None:
        from trajsoup.cli.price import show_price
        from trajsoup.core.quantity import parse_tokens
        from trajsoup.study.price import Machines

        machines = Machines(
            accelerators=accelerators,
            per_branch=per_branch,
            flops_per_second=flops_per_second,
            dollars_per_hour=usd_per_hour,
            dollars_per_terabyte=usd_per_tb,
        )
        overhead = 0 if branch_overhead is None else parse_tokens(branch_overhead, where="--branch-overhead")
        show_price(study, budget, machines=machines, most=most, branch_tokens=overhead, as_json=as_json)
        return
    from trajsoup.core.quantity import format_seconds, format_tokens
    from trajsoup.study.cache import cache_folder
    from trajsoup.study.duration import no_duration, predict
    from trajsoup.study.file.study import load_training_study
    from trajsoup.study.passes import count_passes
    from trajsoup.study.train.data import load_data
    from trajsoup.study.train.plan import on_corpus, plan_study, require_room

    loaded = load_training_study(study_file(study))
    planned = plan_study(loaded)  # a study that cannot be planned is refused before its corpus is tokenised
    texts = load_data(loaded, cache=cache_folder()) if corpus else None
    planned = on_corpus(planned, texts)
    passes = count_passes(planned)
    unknown = no_duration(planned)
    duration = None
    if texts is not None and probe and unknown is None:
        with limited_instructions():
            duration = predict(planned, texts, passes, cache=cache_folder())
    scored = passes.tokens(planned)
    flops = scored * planned.model.flops_per_token / 3  # a forward pass is a third of a training token
    if as_json:
        show_json(
            {
                **_as_json(planned),
                "passes": dataclasses.asdict(passes),
                "scored_tokens": scored,
                "scored_flops": flops,
                "duration": None if duration is None else dataclasses.asdict(duration),
            }
        )
        require_room(planned)
        return
    fields = ("seed", "peak_lr", "global_batch", "schedule", "momentum", "optimizer", "warmup", "weight_decay", "betas")
    shown = [f for f in fields if f in fields[:5] or any(f in b.changed for b in planned.branches)]
    show_table(
        "branches (* differs from the baseline)",
        ["branch", "perturbs", *shown, "steps"],
        [
            [
                branch.name,
                ", ".join(branch.changed) or "baseline",
                *(f"{'*' if f in branch.changed else ''}{branch.recipe.effective().get(f, '-')}" for f in shown),
                branch.steps,
            ]
            for branch in planned.branches
        ],
    )
    cost, trained = planned.cost, planned.budget
    rows: list[list[Any]] = [
        ["model", f"{planned.model.total_params:,} parameters, {planned.model.active_params:,} active per token"],
        ["sequence length", f"{planned.sequence_length:,}"],
        ["horizon t", f"{format_tokens(trained.horizon)} ({trained.horizon:,}) tokens per branch"],
        [
            "total T = N t" + " and apart" * bool(trained.apart),
            f"{format_tokens(trained.total_tokens)} tokens, {trained.n_branches} branches"
            + "".join(f", each once more for {format_tokens(tokens)}" for tokens in trained.apart),
        ],
        ["FLOPs per token", f"{planned.model.flops_per_token:.4g}"],
        ["training FLOPs C", f"{cost.train_flops:.4g}"],
        ["checkpoints", f"{planned.positions.count} per run of t, {cost.checkpoints} in all"],
        [
            "disk",
            f"{format_bytes(cost.checkpoint_bytes)} checkpoints + {format_bytes(cost.state_bytes)} states to resume",
        ],
        *_retention(planned),
        ["free", format_bytes(planned.free_bytes)],
        [
            "models scored",
            f"{passes.validation:,} on validation, {passes.probe:,} on the probe, {passes.test + passes.swept:,} on test: "
            f"{passes.total:,} passes",
        ],
        ["scored", f"{format_tokens(scored)} tokens, {flops:.4g} FLOPs ({flops / cost.train_flops:.1%} of C)"],
    ]
    if passes.gradient_tokens:
        rows.append(["learned from", f"{format_tokens(passes.gradient_tokens)} tokens, forward and backward"])
    if planned.epochs is not None:
        rows.append(["epochs of the training set", f"{planned.epochs:.3g}"])
    if duration is not None:
        parts = ", ".join(f"{name} {format_seconds(part)}" for name, part in duration.parts.items())
        rows.append(["time", f"about {format_seconds(duration.seconds)} on this machine, if it is idle"])
        rows.append(["busy", f"{parts} of {'processor time' if duration.on_cpu else 'the clock'}"])
    show_table("cost", ["quantity", "value"], rows)
    show_notes(planned.notes)
    show_notes(() if duration is None else duration.notes)
    show_notes(() if unknown is None else (f"no time is told: {unknown}",))
    require_room(planned)


def _retention(planned: Plan) -> list[list[Any]]:
    """Peak disk of the checkpoints with and without the policy, where there is one."""
    peak = planned.peak
    if peak is None:
        return []
    each = planned.cost.checkpoint_bytes // planned.cost.checkpoints
    return [
        ["peak without retention", f"{format_bytes(peak.without_policy * each)}, {peak.without_policy} checkpoints"],
        ["peak with retention", f"{format_bytes(peak.with_policy * each)}, {peak.with_policy} checkpoints"],
        ["left afterwards", f"about {format_bytes(peak.afterwards * each)}, {peak.afterwards} checkpoints"],
    ]


def _as_json(planned: Plan) -> dict[str, Any]:
    cost, budget = planned.cost, planned.budget
    return {
        "branches": {
            b.name: {
                "recipe": b.recipe.effective(),
                "changed": {k: list(v) for k, v in b.changed.items()},
                "steps": b.steps,
            }
            for b in planned.branches
        },
        "horizon": budget.horizon,
        "apart": budget.apart,
        "checkpoint_every": planned.positions.checkpoint_every,
        "total_tokens": budget.total_tokens,
        "sequence_length": planned.sequence_length,
        "total_params": planned.model.total_params,
        "active_params": planned.model.active_params,
        "flops_per_token": planned.model.flops_per_token,
        "train_flops": cost.train_flops,
        "checkpoints": cost.checkpoints,
        "checkpoint_bytes": cost.checkpoint_bytes,
        "state_bytes": cost.state_bytes,
        "retention": None if planned.peak is None else dataclasses.asdict(planned.peak),
        "epochs": planned.epochs,
        "free_bytes": planned.free_bytes,
        "notes": planned.notes,
    }
