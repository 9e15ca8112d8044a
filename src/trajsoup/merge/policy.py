"""What becomes of which tensor, said in soup.json for the tensors that this soup has: the table of docs/formats.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trajsoup.engine.layout import KEPT, Layout
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.formats.lora import Update
from trajsoup.store.fp8 import Scaled
from trajsoup.store.stored import FLOATS, Tensor

EXAMPLES = 3
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_MTP = re.compile(r"(?:^|\.)(?:mtp|nextn|mtp_layers|multi_token_prediction)(?:\.|_|$)")
_COMPUTED = ("inv_freq", "freqs_cis", "rope.freqs", "cos_cached", "sin_cached")  # non-persistent in transformers


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Tensors that need a word of their own."""

    name: str
    rule: str


WEIGHTS = Kind(name="weights", rule="averaged, each in its own dtype or the one of --dtype")
ROUTER_BIAS = Kind(name="router bias", rule="averaged; keeps its dtype whatever --dtype says")
MTP = Kind(name="MTP layers", rule="averaged, as other weights are")
FP8 = Kind(
    name="FP8 with block scales",
    rule="dequantised to fp32, averaged, quantised with new scales unless --dtype is given",
)
LORA = Kind(name="LoRA targets", rule="base plus scaling B A in each ingredient, then averaged")
EXACT = Kind(name="integers and booleans", rule="equal in all ingredients, or copied from exact_from")
TIED = Kind(name="tied tensors", rule="one storage under several names: averaged once, written under each")
COMPUTED = Kind(name="non-persistent buffers that were saved", rule="averaged, as other weights are")
EXTRA_STATE = Kind(name="_extra_state", rule="left out; with --format same, the first ingredient's")
STATE = Kind(
    name="optimizer, schedulers, random generators, counters", rule="left out, unless --state-from names a checkpoint"
)
KINDS = (WEIGHTS, ROUTER_BIAS, MTP, FP8, LORA, EXACT, TIED, COMPUTED, EXTRA_STATE, STATE)


def policy(ingredient: Checkpoint, layout: Layout) -> dict[str, dict[str, Any]]:
    """By kind: the rule, how many tensors of the soup it was for, and a few of them."""
    layers = ingredient.config.get("num_hidden_layers")
    found: dict[str, list[str]] = {}
    written = {name for file in (layout.wide or layout).files for name in file.header.tensors}
    for name, tensor in ingredient.tensors.items():
        if name in written:
            for kind in _kinds(name, tensor, layers):
                found.setdefault(kind.name, []).append(name)
    found[TIED.name] = _tied({name: t for name, t in ingredient.tensors.items() if name in written})
    for name in ingredient.left_out:
        found.setdefault((EXTRA_STATE if "_extra_state" in name else STATE).name, []).append(name)
    return {
        kind.name: {"rule": kind.rule, "tensors": len(found[kind.name]), "such_as": found[kind.name][:EXAMPLES]}
        for kind in KINDS
        if found.get(kind.name)
    }


def _tied(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of one storage. Few tensors begin where another does, and only these are looked at."""
    begins = Counter([box[:2] for t in tensors.values() for box in t.boxes[:1]])
    places: dict[Any, list[str]] = {}
    for name, tensor in tensors.items() if len(begins) < len(tensors) else ():
        if tensor.nbytes and begins[tensor.boxes[0][:2]] > 1:
            places.setdefault((tensor.boxes, tensor.made), []).append(name)
    return [name for names in places.values() if len(names) > 1 for name in names]


def _kinds(name: str, tensor: Tensor, layers: Any) -> Iterator[Kind]:
    if tensor.dtype not in FLOATS:
        yield EXACT
        return
    if KEPT.search(name):
        yield ROUTER_BIAS
    elif name.endswith(_COMPUTED):
        yield COMPUTED
    elif _MTP.search(name) or (isinstance(layers, int) and (layer := _LAYER.search(name)) and int(layer[1]) >= layers):
        yield MTP  # DeepSeek numbers them after the last layer
    else:
        yield WEIGHTS
    if isinstance(tensor.made, Scaled):
        yield FP8
    if isinstance(tensor.made, Update):
        yield LORA
