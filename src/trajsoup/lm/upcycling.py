"""Branch-Train-MiX (Sukhbaatar 2024): feed-forward parts of dense branches become the experts of a mixture.

    branches of one dense architecture -> their mean, but for the feed-forward parts -> experts, a fresh router -> a folder

The mixture is an architecture that transformers has, so AutoModelForCausalLM loads the folder like any other. With equal
experts it computes what the dense model does, whatever its router says: the weights of the experts chosen sum to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trajsoup.errors import StudyError

LAYOUTS = {"llama": "mixtral", "mistral": "mixtral", "qwen3": "qwen3_moe"}  # dense -> mixture of the same attention
ROUTER = ".mlp.gate.weight"  # the end of its name in both
NOT_SHARED = ("model_type", "architectures", "transformers_version", "_name_or_path", "intermediate_size", "mlp_bias")


def require_dense(config: Mapping[str, Any], *, where: str) -> None:
    """Refuse an architecture whose feed-forward parts do not fit a mixture that transformers has."""
    kind = config.get("model_type")
    if kind not in LAYOUTS:
        raise StudyError(
            f"{where}: branch-train-mix stacks the feed-forward parts of dense models ({', '.join(LAYOUTS)}), and the fork "
            f"point is {kind!r}: take a dense fork point (pretrain: {{model: llama}} makes one), or leave it out"
        )
    if biased := [name for name in ("attention_bias", "mlp_bias") if config.get(name)]:
        raise StudyError(
            f"{where}: branch-train-mix: the fork point has {biased[0]}, for which {LAYOUTS[str(kind)]} has no place: leave "
            "the method out"
        )


def mixture_config(dense: Any, *, experts: int, per_token: int) -> Any:
    """The config of the mixture: everything that both know is the dense model's."""
    from transformers import CONFIG_MAPPING

    told = {name: value for name, value in dense.to_dict().items() if name not in NOT_SHARED}
    kind = LAYOUTS[dense.model_type]
    width = {"intermediate_size": dense.intermediate_size}
    if kind == "qwen3_moe":
        width |= {"moe_intermediate_size": dense.intermediate_size, "norm_topk_prob": True}
    number = "num_local_experts" if kind == "mixtral" else "num_experts"
    return CONFIG_MAPPING[kind](**{**told, **width, number: experts, "num_experts_per_tok": per_token})


def stack_branches(average: Path, branches: Sequence[Path], out: Path, *, per_token: int, seed: int = 0) -> None:
    """Write the mixture of these branches: what is no feed-forward part comes from their `average`. Routers are fresh."""
    import torch

    from trajsoup.lm.models import new_model, open_model

    shared = open_model(average)
    config = mixture_config(shared.config, experts=len(branches), per_token=min(per_token, len(branches)))
    mixture = new_model(config, seed=seed)
    weights = mixture.state_dict()
    dense = shared.state_dict()
    with torch.no_grad():
        for name in weights.keys() & dense.keys():
            weights[name].copy_(dense[name])
        for number, branch in enumerate(branches):
            part = open_model(branch).state_dict()
            for name in weights:
                if name.endswith(".experts.gate_up_proj"):
                    stem = name.removesuffix("experts.gate_up_proj")
                    pair = [part[f"{stem}gate_proj.weight"], part[f"{stem}up_proj.weight"]]
                    weights[name][number].copy_(torch.cat(pair))
                elif name.endswith(".experts.down_proj"):
                    weights[name][number].copy_(part[f"{name.removesuffix('experts.down_proj')}down_proj.weight"])
    mixture.save_pretrained(out)
