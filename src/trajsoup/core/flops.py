"""Training FLOPs per token from a model's config.json (eq:flops-proxy): dense, MoE, MLA and linear attention.

    config -> parameters of each layer -> 6 per active matrix weight + 3 x forward cost of attention

Every weight that multiplies a token costs 2 FLOPs forward and 4 backward. Embedding look-ups and norms cost nothing
worth counting. Softmax attention over L tokens is causal, so a token sees L/2 others on average. Linear attention costs
the same at every length: four products of a head's key and value widths.

The paper's 36.74 GFLOPs for its model at 262,144 tokens needs values that tab:model-config does not print. Four choices
reproduce it: 16 heads of width 128, one MLA layer in four (six of 24), a first dense layer of width 4,608, and one
multi-token-prediction module with an MLA layer of its own that is trained too (`with_mtp`). This function then says 36.79
GFLOPs (0.1 % more), 7.89B parameters (paper: 7.9B) and 1.38B active ones (paper: 1.3B). Without the module it says 31.1:
its attention at that length and its second pass through the head are the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trajsoup.errors import StudyError

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """Size and price of a model."""

    total_params: int
    active_params: int  # that one token uses, embeddings included: the paper's 1.3B
    flops_per_token: float  # of training: forward and backward


@dataclass(frozen=True, slots=True)
class _Part:
    """One piece of the model: its weights, those a token is multiplied with, and FLOPs beyond these (forward)."""

    total: int
    active: int
    multiplied: int
    other_flops: float = 0.0

    def __add__(self, other: _Part) -> _Part:
        return _Part(
            self.total + other.total,
            self.active + other.active,
            self.multiplied + other.multiplied,
            self.other_flops + other.other_flops,
        )


def model_cost(config: Config, *, sequence_length: int, with_mtp: bool = False) -> ModelCost:
    """Price a decoder by its config. `with_mtp` counts its multi-token-prediction modules as trained."""
    hidden, vocab, layers = (_need(config, key) for key in ("hidden_size", "vocab_size", "num_hidden_layers"))
    tied = bool(config.get("tie_word_embeddings", False))
    model = _Part(vocab * hidden * (1 if tied else 2), vocab * hidden * (1 if tied else 2), vocab * hidden)
    model += _vector(hidden)
    for i in range(layers):
        model += _layer(config, i, sequence_length=sequence_length)
    if with_mtp:
        for _ in range(int(_first(config, "num_nextn_predict_layers", "num_mtp_layers") or 0)):
            joined = _matrix(2 * hidden, hidden) + _vector(3 * hidden)
            again = _Part(0, 0, vocab * hidden)  # the head is shared, but a token passes it once more
            attention = _softmax_attention(config, sequence_length)
            model += joined + again + attention + _moe(config) + _vector(2 * hidden)
    flops = 6 * model.multiplied + 3 * model.other_flops
    return ModelCost(total_params=model.total, active_params=model.active, flops_per_token=flops)


def _layer(config: Config, i: int, *, sequence_length: int) -> _Part:
    linear = _is_linear(config, i)
    attention = _linear_attention(config) if linear else _softmax_attention(config, sequence_length)
    feed_forward = _dense(config) if _is_dense(config, i) else _moe(config)
    return attention + feed_forward + _vector(2 * _need(config, "hidden_size"))


def _is_linear(config: Config, i: int) -> bool:
    types = config.get("layer_types")
    if types:
        return types[i] == "linear_attention"
    group = config.get("layer_group_size")
    return group is not None and (i + 1) % int(group) != 0


def _is_dense(config: Config, i: int) -> bool:
    if not _first(config, "n_routed_experts", "num_experts", "num_local_experts"):
        return True
    if types := config.get("mlp_layer_types"):
        return types[i] == "dense"
    step = int(config.get("decoder_sparse_step") or 1)
    return i < int(config.get("first_k_dense_replace") or 0) or i in (config.get("mlp_only_layers") or ()) or (
        (i + 1) % step != 0
    )  # fmt: skip


def _dense(config: Config) -> _Part:
    return _matrix(_need(config, "hidden_size"), 3 * _need(config, "intermediate_size"))


def _moe(config: Config) -> _Part:
    hidden = _need(config, "hidden_size")
    width = int(_first(config, "moe_intermediate_size", "intermediate_size") or 0)
    experts = int(_first(config, "n_routed_experts", "num_experts", "num_local_experts") or 0)
    chosen = int(_first(config, "num_experts_per_tok", "num_experts_per_token") or 0)
    shared = int(_first(config, "n_shared_experts", "num_shared_experts") or 0)
    one = 3 * hidden * width
    routed = _Part(experts * one, chosen * one, chosen * one)
    return routed + _matrix(hidden, experts) + _matrix(hidden, 3 * width * shared)


def _softmax_attention(config: Config, sequence_length: int) -> _Part:
    hidden, heads = _need(config, "hidden_size"), _need(config, "num_attention_heads")
    if config.get("kv_lora_rank") is None:
        width = int(config.get("head_dim") or hidden // heads)
        kv_heads = int(config.get("num_key_value_heads") or heads)
        part = _matrix(hidden, width * (2 * heads + 2 * kv_heads))
        if str(config.get("model_type", "")).startswith("qwen3"):
            part += _vector(2 * width)
        return part + _scores(heads, width, width, sequence_length)
    rank, rope = _need(config, "kv_lora_rank"), _need(config, "qk_rope_head_dim")
    nope, value = _need(config, "qk_nope_head_dim"), _need(config, "v_head_dim")
    query_rank = config.get("q_lora_rank")
    if query_rank is None:
        query = _matrix(hidden, heads * (nope + rope))
    else:
        query = _matrix(hidden, query_rank) + _vector(query_rank) + _matrix(query_rank, heads * (nope + rope))
    key_value = _matrix(hidden, rank + rope) + _vector(rank) + _matrix(rank, heads * (nope + value))
    output = _matrix(heads * value, hidden)
    gate = _matrix(hidden, heads) if config.get("model_type") == "bailing_hybrid" else _vector(0)
    return query + key_value + output + gate + _scores(heads, nope + rope, value, sequence_length)


def _linear_attention(config: Config) -> _Part:
    """Kimi delta attention as in bailing_hybrid: q, k, v, forget gate, output gate, output, and a short convolution."""
    hidden = _need(config, "hidden_size")
    heads = int(_first(config, "linear_num_heads", "num_attention_heads") or 0)
    width = int(_first(config, "linear_head_dim", "head_dim") or 0)
    kernel = int(_first(config, "linear_conv_kernel_dim", "short_conv_kernel_size") or 4)
    inner = heads * width
    convolution = _Part(3 * inner * kernel, 3 * inner * kernel, 3 * inner * kernel)
    small = _vector(heads + inner + width)
    state = _Part(0, 0, 0, 2.0 * 4 * heads * width * width)
    return _matrix(hidden, 6 * inner) + _matrix(hidden, heads) + convolution + small + state


def _scores(heads: int, key_width: int, value_width: int, sequence_length: int) -> _Part:
    return _Part(0, 0, 0, 2.0 * heads * (key_width + value_width) * sequence_length / 2)


def _matrix(rows: int, columns: int) -> _Part:
    return _Part(rows * columns, rows * columns, rows * columns)


def _vector(width: int) -> _Part:
    return _Part(width, width, 0)


def _first(config: Config, *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _need(config: Config, name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise StudyError(f"the model's config.json has {name} = {value!r}, and its cost cannot be computed: set it")
    return value
