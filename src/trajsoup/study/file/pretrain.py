"""The `pretrain` field of a study file: how the fork point is made.

The fork point has a recipe of its own, which no field of the baseline reaches: a study that tries another baseline starts
from the same fork point, and finds it in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from trajsoup.core.quantity import Tokens, parse_number, parse_whole
from trajsoup.core.recipe import Recipe
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.errors import StudyError
from trajsoup.lm.models import FAMILIES, Embedded
from trajsoup.store.yaml_file import check_keys

RECIPE = Recipe(
    peak_lr=1e-2, momentum=0.9, global_batch=32, schedule=Schedule(shape=Shape.LINEAR, decay_to=2e-4)
)  # good for the embedded model: docs/regime.md
NOT_SET_HERE = frozenset({"use_cache", "bos_token_id", "pad_token_id"})
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")  # the same thing in three families


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedModel:
    """A family of the embedded model, and config fields that are not its default."""

    family: str = Embedded.DEEPSEEK_V3.value
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])


def parse_model(data: Any, *, where: object) -> EmbeddedModel:
    """Read a family, or a mapping `family: ...` with config fields to change."""
    changes = dict(data) if isinstance(data, dict) else {}
    family = changes.pop("family", Embedded.DEEPSEEK_V3.value) if isinstance(data, dict) else data
    if family not in tuple(Embedded):
        raise StudyError(f"{where} is {family!r}: use {', '.join(Embedded)}")
    return EmbeddedModel(family=family, changes=_model_fields(Embedded(family), changes, where=where))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrain:
    """How the fork point is made."""

    model: Annotated[
        EmbeddedModel, parse_model, f"{', '.join(Embedded)}; or `family: ...` with config fields to change."
    ] = field(default_factory=EmbeddedModel)
    tokens: Annotated[Tokens, "Tokens to pretrain on."] = 2_000_000
    seed: Annotated[int, "Of the fresh weights."] = 0
    recipe: Annotated[
        Recipe,
        "Recipe fields to change. Default: muon, momentum 0.9, global_batch 32, peak_lr 1e-2, linear decay to 2e-4.",
    ] = RECIPE

    def __post_init__(self) -> None:
        if self.recipe.sources:
            raise StudyError("the fork point is pretrained on all of corpus.pretrain: leave out recipe.sources")


def _model_fields(family: Embedded, changes: Mapping[str, Any], *, where: object) -> dict[str, Any]:
    """Config fields of the embedded model, each of the default's kind, and together a model that can be built."""
    known = {name: value for name, value in FAMILIES[family].items() if name not in NOT_SET_HERE}
    check_keys(dict(changes), ("family", *known), where=where)
    read = {name: _like(known[name], value, where=f"{where}: {name}") for name, value in changes.items()}
    config = {**known, **read}
    experts = next((name for name in EXPERTS if name in config), None)
    for whole, part in (("hidden_size", "num_attention_heads"), ("num_attention_heads", "num_key_value_heads")):
        if config[whole] % config[part]:
            raise StudyError(
                f"{where}: {whole} is {config[whole]}, which {part} ({config[part]}) does not divide: use a multiple"
            )
    if experts is not None and config["num_experts_per_tok"] > config[experts]:
        raise StudyError(
            f"{where}: num_experts_per_tok is {config['num_experts_per_tok']}, of {experts} {config[experts]}: use fewer"
        )
    for name in ("qk_rope_head_dim", "head_dim"):
        if config.get(name, 0) % 2:
            raise StudyError(f"{where}: {name} is {config[name]}, and rotation turns pairs: use an even number")
    return read


def _like(default: Any, value: Any, *, where: object) -> Any:
    """A value of the kind that the default has."""
    match default:
        case bool():
            if not isinstance(value, bool):
                raise StudyError(f"{where} is {value!r}: use true or false")
            return value
        case int():
            return parse_whole(value, where=where, least=min(default, 1))
        case float():
            return parse_number(value, where=where)
        case _:
            if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
                raise StudyError(f"{where} is {value!r}: use a list of layer numbers")
            return value
