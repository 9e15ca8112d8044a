"""What a GGUF file says of a model: llama.cpp's name for the architecture, its sizes, its names of tensors.

config.json -> Model; the names themselves are the gguf package's. An architecture is its line in `ARCHITECTURES`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajsoup.errors import CheckpointError
from trajsoup.store.checkpoint import Checkpoint

ROTATED = ("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One of transformers' as llama.cpp has it."""

    name: str  # llama.cpp's
    pairs: bool  # rows of rotary heads lie in pairs there, in halves in transformers


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture("llama", pairs=True),
    "MistralForCausalLM": Architecture("llama", pairs=True),
    "Qwen2ForCausalLM": Architecture("qwen2", pairs=False),
    "Qwen3ForCausalLM": Architecture("qwen3", pairs=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What config.json says, in the words of this module."""

    architecture: Architecture
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    groups: int  # of queries that share a key and a value
    head_rows: int
    context: int
    vocabulary: int
    epsilon: float
    rope: Mapping[str, Any]

    def describe(self, writer: Any) -> None:
        """Write the sizes into a `gguf.GGUFWriter`."""
        from gguf import RopeScalingType

        writer.add_block_count(self.layers)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.hidden)
        writer.add_feed_forward_length(self.feed_forward)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.groups)
        writer.add_key_length(self.head_rows)
        writer.add_value_length(self.head_rows)
        writer.add_rope_dimension_count(self.head_rows)
        writer.add_rope_freq_base(float(self.rope["rope_theta"]))
        writer.add_layer_norm_rms_eps(self.epsilon)
        writer.add_vocab_size(self.vocabulary)
        if self.rope["rope_type"] in ("linear", "yarn"):
            writer.add_rope_scaling_type(RopeScalingType(self.rope["rope_type"]))
            writer.add_rope_scaling_factor(float(self.rope["factor"]))
        if self.rope["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(int(self.rope["original_max_position_embeddings"]))

    def names(self, checkpoint: Checkpoint) -> dict[str, str]:
        """llama.cpp's name of every tensor."""
        from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

        number = next(arch for arch in MODEL_ARCH if MODEL_ARCH_NAMES[arch] == self.architecture.name)
        known = get_tensor_name_map(number, self.layers)
        found = {name: known.get_name(name, try_suffixes=(".weight", ".bias")) for name in checkpoint.tensors}
        if unknown := [name for name, other in found.items() if other is None]:
            raise CheckpointError(
                f"{checkpoint.path}: llama.cpp's {self.architecture.name} has no name for {', '.join(unknown[:8])}"
                f"{f' and {len(unknown) - 8} more' if len(unknown) > 8 else ''}: it cannot be written as GGUF"
            )
        return {name: other for name, other in found.items() if other is not None}

    def turned(self, name: str) -> bool:
        """Whether the rows of a tensor's heads have to be put in pairs."""
        return self.architecture.pairs and name.endswith(ROTATED)

    def rope_factors(self) -> np.ndarray | None:
        """Llama 3's scaling of each rotary frequency, which llama.cpp reads as a tensor; None without it."""
        if self.rope["rope_type"] != "llama3":
            return None
        low, high, whole, factor = (
            float(self.rope[key])
            for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "factor")
        )
        steps = np.arange(0, self.head_rows, 2, dtype=np.float64) / self.head_rows
        turns = whole * float(self.rope["rope_theta"]) ** -steps / (2 * math.pi)  # in the original context
        share = np.clip((turns - low) / (high - low), 0, 1)
        return (1 / ((1 - share) / factor + share)).astype(np.float32)


def read_model(checkpoint: Checkpoint) -> Model:
    """The sizes of a checkpoint's model, or an error that says why llama.cpp would compute something else."""
    config, where = checkpoint.config, checkpoint.folder / "config.json"
    listed = config.get("architectures") or [None]
    architecture = ARCHITECTURES.get(str(listed[0]))
    if architecture is None:
        raise CheckpointError(
            f"{where} names the architecture {listed[0]!r}, and GGUF is written for {', '.join(ARCHITECTURES)}: convert it "
            "by llama.cpp's convert_hf_to_gguf.py, which reads the soup's folder as any other"
        )

    def number(key: str) -> Any:
        if not isinstance(config.get(key), int | float):
            raise CheckpointError(f"{where} lacks {key}, which GGUF needs: save it by transformers")
        return config[key]

    heads, context = number("num_attention_heads"), number("max_position_embeddings")
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_theta", config.get("rope_theta") or 10000.0)
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    _require_known(config, rope, str(where))
    # Within its window a sliding attention is a whole one, which is what llama.cpp computes for these.
    window = config.get("sliding_window") if architecture.name == "llama" else None
    return Model(
        architecture=architecture,
        layers=number("num_hidden_layers"),
        hidden=number("hidden_size"),
        feed_forward=number("intermediate_size"),
        heads=heads,
        groups=config.get("num_key_value_heads") or heads,
        head_rows=config.get("head_dim") or number("hidden_size") // heads,
        context=min(context, window or context),
        vocabulary=number("vocab_size"),
        epsilon=float(number("rms_norm_eps")),
        rope=rope,
    )


_ROPE = {
    "default": (),
    "linear": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


def _require_known(config: Mapping[str, Any], rope: Mapping[str, Any], where: str) -> None:
    odd = {
        "hidden_act": config.get("hidden_act", "silu") != "silu",
        "use_sliding_window": bool(config.get("use_sliding_window")),
        "rope_type": rope["rope_type"] not in _ROPE,
        "partial_rotary_factor": rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0,
    }
    if strange := next((key for key, wrong in odd.items() if wrong), None):
        value = rope.get(strange, config.get(strange))
        raise CheckpointError(
            f"{where} has {strange} = {value!r}, which llama.cpp would not compute: no GGUF is written"
        )
    if lost := next((key for key in _ROPE[rope["rope_type"]] if key not in rope), None):
        raise CheckpointError(
            f"{where} has a rope_type of {rope['rope_type']!r} and no {lost}: save it by transformers"
        )
