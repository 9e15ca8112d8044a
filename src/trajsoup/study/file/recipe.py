"""The recipe fields of a study file: baseline and branches (tab:training-config, tab:branch-mapping)."""

from __future__ import annotations

import dataclasses
from typing import Any

from trajsoup.core.quantity import parse_number, parse_share, parse_tokens, parse_whole
from trajsoup.core.recipe import Optimizer, Recipe, Warmup
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.errors import RecipeError, StudyError
from trajsoup.store.yaml_file import check_keys

RECIPE_FIELDS = {
    "optimizer": "muon (hidden matrices; the rest AdamW) or adamw.",
    "momentum": "Of Muon, from 0 below 1. For adamw set betas instead.",
    "peak_lr": "Learning rate after the warmup.",
    "global_batch": "Sequences in one optimizer step, over all processes.",
    "seed": "Of the data order.",
    "schedule": "constant, linear, cosine or wsd; or `{decay_to: LR, shape: linear, decay_share: 20%}`.",
    "warmup": "Linear warmup: a share of the horizon (1%), or tokens (5B).",
    "weight_decay": "Decoupled; norms and biases are not decayed.",
    "clip": "Largest norm of the whole gradient.",
    "betas": "Of AdamW: [beta1, beta2].",
}
NOT_PERTURBED = {
    "architecture": (
        "model", "architecture", "config", "hidden_size", "num_hidden_layers", "num_experts", "n_routed_experts",
        "vocab_size", "num_attention_heads", "intermediate_size", "sequence_length", "fork_point", "tokenizer",
    ),
    "data mixture": ("corpus", "data", "mixture", "data_mixture", "train", "dataset", "datasets", "weights"),
}  # fmt: skip
SCHEDULE_FIELDS = ("shape", "decay_to", "decay_share")


def parse_recipe(data: Any, *, base: Recipe, where: str) -> Recipe:
    """Return `base` with the given fields changed."""
    if isinstance(data, dict):
        for what, names in NOT_PERTURBED.items():
            for name in data:
                if name in names:
                    raise RecipeError(
                        f"{where}: {name!r} would change the {what}, and branches must share it to be averaged: change "
                        f"it for the whole study, or perturb one of {', '.join(RECIPE_FIELDS)}"
                    )
    check_keys(data, tuple(RECIPE_FIELDS), where=where)
    changes = {name: _value(name, value, base, f"{where}: {name}") for name, value in data.items()}
    try:
        recipe = dataclasses.replace(base, **changes)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    if "momentum" in data and recipe.optimizer is Optimizer.ADAMW:
        raise RecipeError(f"{where}: momentum is Muon's: with adamw set betas, whose first value is its momentum")
    return recipe


def _value(name: str, value: Any, base: Recipe, where: str) -> Any:
    match name:
        case "optimizer":
            if str(value) not in tuple(Optimizer):
                raise StudyError(f"{where} is {value!r}: use {' or '.join(Optimizer)}")
            return Optimizer(str(value))
        case "global_batch" | "seed":
            return parse_whole(value, where=where, least=0 if name == "seed" else 1)
        case "schedule":
            return _schedule(value, base, where)
        case "warmup":
            return _warmup(value, where)
        case "betas":
            if not isinstance(value, list) or len(value) != 2:
                raise StudyError(f"{where} is {value!r}: write two numbers, like [0.9, 0.95]")
            return tuple(parse_number(item, where=where) for item in value)
        case _:
            return parse_number(value, where=where)


def _schedule(value: Any, base: Recipe, where: str) -> Schedule:
    if not isinstance(value, dict):
        return Schedule(shape=_shape(value, where))
    check_keys(value, SCHEDULE_FIELDS, where=where)
    shape = _shape(value["shape"], where) if "shape" in value else Shape.LINEAR
    share = parse_share(value["decay_share"], where=f"{where}.decay_share") if "decay_share" in value else 0.2
    return Schedule(
        shape=shape, decay_to=parse_number(value.get("decay_to", 0), where=f"{where}.decay_to"), decay_share=share
    )


def _shape(value: Any, where: str) -> Shape:
    if str(value) not in tuple(Shape):
        raise StudyError(f"{where} is {value!r}: use {', '.join(Shape)}, or `{{decay_to: LR}}`")
    return Shape(str(value))


def _warmup(value: Any, where: str) -> Warmup:
    text = str(value).strip()
    if text.endswith("%") or (isinstance(value, int | float) and 0 <= value < 1):
        return Warmup(share=parse_share(value, where=where))
    return Warmup(tokens=parse_tokens(value, where=where))
