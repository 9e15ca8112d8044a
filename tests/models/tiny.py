"""Real transformers models, small enough for a test: several architectures, and branches of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MIXTURE = {"num_experts_per_tok": 2, "moe_intermediate_size": 8}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "decoder_sparse_step": 1, **MIXTURE},
    "deepseek_v3": {
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        **MIXTURE,
        **LATENT,
    },
    "gpt_oss": {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},  # experts fused into 3-D tensors
}


def model(kind: str, *, seed: int = 0) -> PreTrainedModel:
    """A model with random weights in fp32."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE, **ARCHITECTURES[kind]))


def branch_off(start: PreTrainedModel, *, seed: int, away: float = 0.05) -> PreTrainedModel:
    """Move every weight and floating buffer a little, as training would."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in start.state_dict().values():
            if tensor.is_floating_point():
                scale = away * max(tensor.float().std().item() if tensor.numel() > 1 else 0.0, 0.01)
                tensor.add_(scale * torch.randn(tensor.shape, generator=chance, dtype=torch.float32).to(tensor.dtype))
    return start


def in_bf16(loaded: PreTrainedModel) -> PreTrainedModel:
    """As such models are kept: bf16, but the router's correction bias in fp32."""
    loaded = loaded.to(torch.bfloat16)
    for module in loaded.modules():
        if hasattr(module, "e_score_correction_bias"):
            module.e_score_correction_bias = module.e_score_correction_bias.float()
    return loaded


def save(loaded: PreTrainedModel, folder: Path, *, shard_size: str = "5GB") -> Path:
    """Save as training frameworks do."""
    loaded.save_pretrained(folder, max_shard_size=shard_size)
    return folder


def load(folder: Path) -> PreTrainedModel:
    """Load as a user would, and fail if a weight is missing or too many."""
    loaded, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    return loaded
