"""Recipes psi_n: what a branch may change against the baseline (sec:problem-formulation, tab:branch-mapping).

    baseline + {field: value} -> Recipe -> perturbations (what differs) -> refuse branches that are equal

The architecture is no field of a recipe: all branches keep the fork point's shape, so that their parameters can be averaged
coordinate by coordinate. They keep the same training distribution too, unless `sources` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from trajsoup.core.quantity import Count, format_tokens, parse_number, parse_share, parse_tokens
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.errors import RecipeError, StudyError

_SHARED = "and branches must share it to be averaged: change it for the whole study, or perturb a field of the recipe"
_ARCHITECTURE = (
    "model", "architecture", "config", "hidden_size", "num_hidden_layers", "num_experts", "n_routed_experts",
    "vocab_size", "num_attention_heads", "intermediate_size", "sequence_length", "fork_point", "tokenizer",
)  # fmt: skip
_MIXTURE = ("corpus", "data", "train", "dataset", "datasets")


Sources = tuple[tuple[str, float], ...]  # source of documents, its share of the sequences


class Optimizer(StrEnum):
    """Which optimizer trains the hidden matrices. Embeddings, norms, router and head always use AdamW."""

    MUON = "muon"
    ADAMW = "adamw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """Length of the linear warmup: a share of the horizon, or tokens."""

    share: float = 0.01
    tokens: int | None = None  # used instead of the share where given

    def length(self, horizon: int) -> int:
        """In tokens."""
        return round(self.share * horizon) if self.tokens is None else self.tokens

    def __str__(self) -> str:
        return f"{self.share * 100:.4g}%" if self.tokens is None else format_tokens(self.tokens)


def parse_warmup(value: object, *, where: object) -> Warmup:
    """Read a share of the horizon (1%, 0.01) or tokens (5B)."""
    if str(value).strip().endswith("%") or (isinstance(value, int | float) and 0 <= value < 1):
        return Warmup(share=parse_share(value, where=where))
    return Warmup(tokens=parse_tokens(value, where=where))


def parse_betas(value: Any, *, where: object) -> tuple[float, float]:
    """Read two numbers."""
    match value:
        case [first, second]:
            return parse_number(first, where=where), parse_number(second, where=where)
        case _:
            raise StudyError(f"{where} is {value!r:.100}: write two numbers, like [0.9, 0.95]")


def parse_sources(value: Any, *, where: object) -> Sources:
    """Read a source, several that weigh the same, or name -> weight. Weights become shares."""
    match value:
        case {**weights}:
            given = {str(name): weight for name, weight in weights.items()}
        case [*names]:
            given = dict.fromkeys(map(str, names), 1)
        case _:
            given = {str(value): 1}
    found = {name: parse_number(weight, where=f"{where}: {name}") for name, weight in given.items()}
    for name, weight in found.items():
        if not (weight > 0 and math.isfinite(weight)):
            raise StudyError(f"{where}: {name} has the weight {weight:g}: use a number above 0, or leave it out")
    if not found:
        raise StudyError(f"{where} is empty: name a source of the corpus, or leave it out for all")
    total = math.fsum(found.values())
    return tuple(sorted((name, weight / total) for name, weight in found.items()))


_ELSEWHERE = {  # what other trainers call a field
    **dict.fromkeys(("lr", "learning_rate", "max_lr"), "peak_lr"),
    **dict.fromkeys(("batch_size", "global_batch_size", "train_batch_size"), "global_batch"),
    **dict.fromkeys(("max_grad_norm", "grad_clip", "gradient_clipping"), "clip"),
    **dict.fromkeys(("lr_scheduler_type", "lr_scheduler", "scheduler"), "schedule"),
    **dict.fromkeys(("warmup_ratio", "warmup_steps"), "warmup"),
    **dict.fromkeys(("wd",), "weight_decay"),
    **dict.fromkeys(("mixture", "data_mixture", "domains", "source", "source_weights", "weights"), "sources"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one branch trains. The defaults are the paper's EXP1."""

    MISPLACED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(_ARCHITECTURE, f"would change the architecture, {_SHARED}"),
        **dict.fromkeys(
            _MIXTURE, "would change the documents: name them in `corpus`, and what this branch reads of them in sources"
        ),
        **{theirs: f"is called {ours} here: did you mean {ours!r}?" for theirs, ours in _ELSEWHERE.items()},
    }

    LATER: ClassVar[frozenset[str]] = frozenset({"sources"})  # no part of the digest of a study that does not name it

    optimizer: Annotated[Optimizer, "muon (hidden matrices; the rest AdamW) or adamw."] = Optimizer.MUON
    momentum: Annotated[float, "Of Muon, from 0 below 1. For adamw set betas instead."] = 0.0
    peak_lr: Annotated[float, "Learning rate after the warmup."] = 3.39e-4
    global_batch: Annotated[Count, "Sequences in one optimizer step, over all processes."] = 256
    seed: Annotated[int, "Of the data order."] = 1234
    schedule: Annotated[Schedule, "A shape, or `{decay_to: LR, ...}`; see below."] = Schedule()
    warmup: Annotated[Warmup, parse_warmup, "Linear: a share of the horizon (1%), or tokens (5B)."] = Warmup()
    weight_decay: Annotated[float, "Decoupled; norms and biases are not decayed."] = 0.1
    clip: Annotated[float, "Largest norm of the gradient of all parameters together."] = 1.0
    betas: Annotated[tuple[float, float], parse_betas, "Of AdamW: [beta1, beta2]."] = (0.9, 0.95)
    sources: Annotated[
        Sources,
        parse_sources,
        "Sources of the corpus to train on: a name, a list, or name -> weight (shares of the sequences). `tasks` stands for "
        "every `tasks:...`. Default: all documents, as they come. Branches that differ in it need `evaluate: comparable`.",
    ] = ()

    def require_used(self, given: Collection[str]) -> None:
        """Refuse a given field that would have no effect."""
        if "momentum" in given and self.optimizer is Optimizer.ADAMW:
            raise RecipeError("momentum is Muon's: with adamw set betas, whose first value is its momentum")

    def __post_init__(self) -> None:
        _require(self.peak_lr > 0 and math.isfinite(self.peak_lr), "peak_lr", self.peak_lr, "above 0")
        _require(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 up to, not including, 1")
        _require(self.global_batch >= 1, "global_batch", self.global_batch, "of 1 or more sequences")
        _require(0 <= self.seed < 2**63, "seed", self.seed, "from 0 to 2^63 - 1")
        _require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "of 0 or more")
        _require(self.clip > 0 and math.isfinite(self.clip), "clip", self.clip, "above 0")
        _require(
            len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas),
            "betas",
            self.betas,
            "two, each from 0 below 1",
        )
        if self.schedule.shape is not Shape.CONSTANT and self.schedule.decay_to > self.peak_lr:
            raise RecipeError(
                f"schedule.decay_to is {self.schedule.decay_to:g}, above the peak_lr {self.peak_lr:g}: lower the floor"
            )

    def effective(self) -> dict[str, str]:
        """Every field that has an effect, as text: what makes two branches different."""
        shown = {f.name: _show(getattr(self, f.name)) for f in fields(self) if f.name != "sources"}
        if self.optimizer is Optimizer.ADAMW:
            del shown["momentum"]
        if self.sources:
            shown["sources"] = ", ".join(f"{name} {share:.4g}" for name, share in self.sources)
        return shown


def perturbations(recipe: Recipe, *, baseline: Recipe) -> dict[str, tuple[str, str]]:
    """Return the fields that differ: name -> (value of the baseline, value of the branch). The paper's bold entries."""
    mine, base = recipe.effective(), baseline.effective()
    return {
        name: (base.get(name, "-"), mine.get(name, "-"))
        for name in (f.name for f in fields(Recipe))
        if base.get(name, "-") != mine.get(name, "-")
    }


def require_distinct(recipes: Mapping[str, Recipe]) -> None:
    """Refuse two branches that would train the same model: their average is only a copy."""
    seen: dict[tuple[tuple[str, str], ...], str] = {}
    for branch, recipe in recipes.items():
        key = tuple(recipe.effective().items())
        if key in seen:
            raise RecipeError(
                f"branches {seen[key]!r} and {branch!r} have the same recipe and would train the same weights: change a "
                f"field of {branch!r} (its seed is the cheapest), or drop it"
            )
        seen[key] = branch


def _show(value: object) -> str:
    match value:
        case Schedule():
            return value.describe()
        case float():
            return f"{value:.6g}"
        case tuple():
            return ", ".join(f"{item:g}" for item in value)  # pyright: ignore[reportUnknownVariableType]
        case _:
            return str(value)


def _require(ok: bool, name: str, value: object, wanted: str) -> None:
    if not ok:
        raise RecipeError(f"{name} is {value}: use a value {wanted}")
