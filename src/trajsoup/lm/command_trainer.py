"""Branches trained by someone else's script: a command rendered from the recipe.

    "torchrun ... --lr {peak_lr} --seed {seed} --out {output_dir}" + recipe -> words -> a process (study/train/branches.py)

The command is split into words before anything is filled in, and no shell runs it, so no value can become a second
command. What the script saves is found by the same scan as any foreign run.
"""

from __future__ import annotations

import difflib
import re
import shlex
from pathlib import Path

from trajsoup.core.positions import Positions
from trajsoup.core.recipe import Recipe
from trajsoup.errors import StudyError

PLACEHOLDERS = {
    "branch": "Name of the branch.",
    "output_dir": "Folder for the branch's checkpoints: `checkpoint-<step>`, or any form that `scan` finds.",
    "fork_point": "Folder of the checkpoint to start from.",
    "latest_checkpoint": "The branch's newest checkpoint, for `resume_command`; empty where there is none.",
    "optimizer": "muon or adamw.",
    "momentum": "Of Muon.",
    "peak_lr": "Learning rate after the warmup.",
    "global_batch": "Sequences in one optimizer step.",
    "seed": "Of the data order.",
    "schedule": "constant, linear, cosine or wsd.",
    "decay_to": "Learning rate at the horizon.",
    "decay_share": "Share of the horizon over which wsd decays.",
    "weight_decay": "Decoupled weight decay.",
    "clip": "Largest norm of the gradient.",
    "beta1": "First beta of AdamW.",
    "beta2": "Second beta of AdamW.",
    "sequence_length": "Tokens of one sequence.",
    "tokens_per_step": "global_batch x sequence_length.",
    "horizon": "Tokens to train on.",
    "checkpoint_every": "Tokens between two checkpoints.",
    "warmup_tokens": "Tokens of the warmup.",
    "total_steps": "horizon / tokens_per_step.",
    "checkpoint_steps": "checkpoint_every / tokens_per_step.",
    "warmup_steps": "warmup_tokens / tokens_per_step, rounded.",
}  # what a command may ask for; docs/study-file.md is made from it
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def command_fields(
    recipe: Recipe,
    *,
    branch: str,
    output_dir: Path,
    fork_point: Path,
    positions: Positions,
    sequence_length: int,
    latest_checkpoint: Path | None = None,
) -> dict[str, str]:
    """Everything that a command may ask for, as text."""
    step_tokens = recipe.global_batch * sequence_length
    warmup_tokens = recipe.warmup.length(positions.horizon)
    values = {
        "branch": branch,
        "output_dir": output_dir,
        "fork_point": fork_point,
        "latest_checkpoint": "" if latest_checkpoint is None else latest_checkpoint,
        "optimizer": recipe.optimizer.value,
        "momentum": recipe.momentum,
        "peak_lr": recipe.peak_lr,
        "global_batch": recipe.global_batch,
        "seed": recipe.seed,
        "schedule": recipe.schedule.shape.value,
        "decay_to": recipe.schedule.decay_to,
        "decay_share": recipe.schedule.decay_share,
        "weight_decay": recipe.weight_decay,
        "clip": recipe.clip,
        "beta1": recipe.betas[0],
        "beta2": recipe.betas[1],
        "sequence_length": sequence_length,
        "tokens_per_step": step_tokens,
        "horizon": positions.horizon,
        "checkpoint_every": positions.checkpoint_every,
        "warmup_tokens": warmup_tokens,
        "total_steps": positions.horizon // step_tokens,
        "checkpoint_steps": positions.checkpoint_every // step_tokens,
        "warmup_steps": round(warmup_tokens / step_tokens),
    }
    return {name: str(value) for name, value in values.items()}


def render(command: str, fields: dict[str, str], *, where: str) -> list[str]:
    """Return the command's words with every {field} filled in. Other braces (JSON) are left as they are."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise StudyError(f"{where}: cannot be split into words ({error}): check its quotes") from error
    if not words:
        raise StudyError(f"{where}: is empty: write the command that trains a branch")
    return [_FIELD.sub(lambda match: _fill(match[1], fields, where), word) for word in words]


def _fill(name: str, fields: dict[str, str], where: str) -> str:
    if name not in fields:
        near = difflib.get_close_matches(name, fields, n=1)
        hint = f"did you mean {{{near[0]}}}?" if near else f"known: {', '.join(fields)}"
        raise StudyError(f"{where}: asks for {{{name}}}, which is unknown: {hint}")
    return fields[name]
