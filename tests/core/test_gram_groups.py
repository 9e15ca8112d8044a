"""The groups that a tensor's name puts it into."""

from __future__ import annotations

import pytest

from trajsoup.core.tensor_groups import tensor_groups


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("model.embed_tokens.weight", ("embeddings",)),
        ("lm_head.weight", ("embeddings",)),
        ("transformer.wte.weight", ("embeddings",)),
        ("model.norm.weight", ("norms",)),
        ("model.layers.11.input_layernorm.weight", ("norms", "layer 11")),
        ("model.layers.3.self_attn.q_norm.weight", ("norms", "layer 3")),
        ("model.layers.3.self_attn.q_proj.weight", ("attention", "layer 3")),
        ("model.layers.3.mlp.gate_proj.weight", ("mlp", "layer 3")),
        ("model.layers.3.mlp.gate.weight", ("router", "layer 3")),
        ("model.layers.3.mlp.gate.e_score_correction_bias", ("router", "layer 3")),
        ("model.layers.3.mlp.experts.17.up_proj.weight", ("experts", "layer 3")),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", ("experts", "layer 3")),
        ("transformer.h.5.attn.c_attn.weight", ("attention", "layer 5")),
        ("something.else", ("other",)),
    ],
)
def test_a_tensor_belongs_to_its_kind_and_its_layer(name, groups):
    assert tensor_groups(name, (1,)) == groups
