"""Which tensors belong together, by their names: attention, experts, ...; layers; and one part for each tensor.

tensor_groups: the groups that geometry looks at, which overlap        part_of: a partition, for weights by group
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?:\.|$)")
_KINDS = (  # the first that matches names the kind; a router lies inside the experts' module, so it comes first
    ("norms", re.compile(r"norm|(?:^|\.)ln_")),
    ("router", re.compile(r"router|(?:mlp|moe|block_sparse_moe)\.gate\.|expert_bias|e_score_correction")),
    ("experts", re.compile(r"expert")),
    ("embeddings", re.compile(r"embed|lm_head|(?:^|\.)w[tp]e\.|(?:^|\.)output\.weight")),
    ("attention", re.compile(r"attn|attention")),
    ("mlp", re.compile(r"mlp|feed_forward|ffn")),
)


def tensor_groups(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the groups of a tensor by its name: its kind (attention, experts, ...) and its layer."""
    lower = name.lower()
    kind = next((kind for kind, pattern in _KINDS if pattern.search(lower)), "other")
    layer = _LAYER.search(lower)
    return (kind,) if layer is None else (kind, f"layer {int(layer[1])}")


def part_of(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The one part of a tensor: its layer, or its kind outside the layers."""
    return tensor_groups(name, shape)[-1:]


def itself(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Every tensor is a part of its own."""
    return (name,)


PARTS: dict[str, Callable[[str, tuple[int, ...]], tuple[str, ...]]] = {"layer": part_of, "tensor": itself}
