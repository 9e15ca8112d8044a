"""The embedded default: the paper's model in miniature, made from a transformers config without any download.

    name + vocabulary -> config -> model with seeded weights        (or: a folder -> config and weights)

First layer dense, then routed experts with a shared one (tab:model-config). `deepseek_v3` has the paper's MLA and is
the default; `qwen3_moe` is faster but has no shared expert; `bailing_hybrid` is the paper's own family, MLA and KDA, and
far slower on a CPU, where its linear attention has no kernel. `llama` is dense: no experts at all.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajsoup.errors import CheckpointError, OutputError, TrainError
from trajsoup.store.publish import publishing
from trajsoup.store.regular import copy_small

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

FAST_EXPERTS = "grouped_mm"  # on a CPU many times faster than batched_mm, and faster than eager at small batches


class Embedded(StrEnum):
    """Families that the embedded model comes in."""

    DEEPSEEK_V3 = "deepseek_v3"
    QWEN3_MOE = "qwen3_moe"
    BAILING_HYBRID = "bailing_hybrid"
    LLAMA = "llama"  # dense


COMMON = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
    "use_cache": False,
    "bos_token_id": None,
    "pad_token_id": None,
}
LATENT = {
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "num_nextn_predict_layers": 0,
}
FAMILIES: dict[Embedded, dict[str, Any]] = {
    Embedded.DEEPSEEK_V3: {**COMMON, **LATENT, "n_routed_experts": 8, "q_lora_rank": 32},
    Embedded.QWEN3_MOE: {
        **COMMON,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": 8,
        "mlp_only_layers": [0],
        "norm_topk_prob": True,
    },
    Embedded.BAILING_HYBRID: {**COMMON, **LATENT, "num_local_experts": 8, "head_dim": 16, "layer_group_size": 4},
    Embedded.LLAMA: {
        **{
            name: value
            for name, value in COMMON.items()
            if name not in ("moe_intermediate_size", "num_experts_per_tok")
        },
        "num_key_value_heads": 2,
    },
}


def embedded_config(
    family: Embedded = Embedded.DEEPSEEK_V3,
    *,
    vocab_size: int,
    end_of_text: int,
    sequence_length: int,
    changes: dict[str, Any] | None = None,
) -> PretrainedConfig:
    """Return the config of the embedded model; `changes` overrides single fields."""
    from transformers import CONFIG_MAPPING

    if family.value not in CONFIG_MAPPING:
        raise TrainError(
            f"this version of transformers has no {family.value!r}: upgrade it, or use {Embedded.DEEPSEEK_V3.value!r}"
        )
    settings = {
        **FAMILIES[family],
        "vocab_size": vocab_size,
        "eos_token_id": end_of_text,
        "max_position_embeddings": max(sequence_length, 512),
        **(changes or {}),
    }
    return CONFIG_MAPPING[family.value](**settings)


def new_model(config: PretrainedConfig, *, seed: int) -> PreTrainedModel:
    """Return a model with fresh fp32 weights that depend on the config and the seed alone."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # saving a small model is not worth a bar on somebody's terminal
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return with_fast_experts(AutoModelForCausalLM.from_config(config, dtype=torch.float32))


def open_model(folder: Path, *, dtype: str = "float32") -> PreTrainedModel:
    """Load a checkpoint folder as a causal language model. Nothing is downloaded, no code of the folder is run."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # loading is part of a longer progress, which the command line shows
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
        )
    except (OSError, ValueError, KeyError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{folder} cannot be loaded as a causal language model: {first_line}: check the folder"
        ) from error
    return with_fast_experts(model)


def with_fast_experts(model: Any) -> Any:
    """Choose the fastest way through the experts, where there are any."""
    with contextlib.suppress(ValueError):  # a model without experts
        model.set_experts_implementation(FAST_EXPERTS)
    return model


def as_float32(folder: Path, out: Path) -> Path:
    """A copy of a model whose weights are stored in fewer bits: what branches start from, and are compared with."""
    if not out.is_dir():
        import torch
        from safetensors.torch import load_file, save_file

        with contextlib.suppress(OutputError), publishing(out) as unfinished:  # or another process makes the same one
            for path in folder.iterdir():
                if path.suffix != ".safetensors":
                    copy_small(path, unfinished / path.name)
                    continue
                weights = {name: tensor.to(torch.float32) for name, tensor in load_file(path).items()}
                save_file(weights, unfinished / path.name, metadata={"format": "pt"})
    return out
