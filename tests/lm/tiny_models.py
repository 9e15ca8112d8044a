"""Tiny models and checkpoints to test with."""

import copy
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DeepseekV3Config, LlamaConfig, Qwen3MoeConfig

from trajsoup.store.checkpoint import Checkpoint, open_checkpoint


def llama_config(vocab_size=64, *, tied=False, **changes):
    shape = {
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
    }
    return LlamaConfig(**(shape | changes))


def moe_config(vocab_size=64, *, tied=True):
    return Qwen3MoeConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        mlp_only_layers=[0],
        max_position_embeddings=256,
        tie_word_embeddings=tied,
    )


def shared_expert_config(vocab_size=64):
    return DeepseekV3Config(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_hidden_layers=2,
        first_k_dense_replace=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_nope_head_dim=4,
        qk_rope_head_dim=4,
        v_head_dim=4,
        max_position_embeddings=256,
    )


def make_model(config, *, seed=0):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()  # a model writes its dtype into its config


def save_checkpoints(folder: Path, config, *, count, dtype=torch.float32) -> dict[str, Checkpoint]:
    """A random walk of checkpoints, by key."""
    model = make_model(config).to(dtype)
    found = {}
    for i in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape).to(dtype), alpha=0.05)
        path = folder / f"checkpoint-{i + 1}"
        model.save_pretrained(path)
        found[f"c{i + 1}"] = open_checkpoint(path)
    return found
