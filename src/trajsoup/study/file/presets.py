"""Studies that come with the package: `quick` for `trajsoup demo`, `paper` for the whole protocol.

Chosen by the rule of docs/regime.md, which looks at validation and at the serial run, and at no soup. Positions are
multiples of one step of the largest batch, so that every branch saves at the same tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from trajsoup.errors import StudyError
from trajsoup.store.publish import write_atomic

LENGTH, BATCH = 128, 16
EVERY = 24 * LENGTH * BATCH  # tokens between checkpoints, as in the map
HORIZON = 24 * EVERY  # T of the rule: its halves and thirds are saved too
LEARNING_RATE = 4e-3  # of mid-training
WEIGHT_DECAY = 0.5  # with less, a run that has nothing more to learn unlearns
DOMAINS = ("prose:torch", "prose:transformers", "tasks")  # of the builtin corpus: what experts are trained on
TRAIN_BYTES = 125_000  # of prose: about 0.05M tokens, which a run soon has nothing more to learn from
MODEL = {
    "family": "deepseek_v3",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "n_routed_experts": 4,
    "moe_intermediate_size": 64,
}  # 268k parameters
DENSE_MODEL = {"family": "llama", "hidden_size": 64, "num_hidden_layers": 3}  # 213k parameters


class Preset(StrEnum):
    """Studies by name."""

    QUICK = "quick"  # about four minutes on two idle cores
    PAPER = "paper"  # five branches, every sweep, fine-tuning, several seeds
    WSD = "wsd"  # tab:e32a8-mid-train-main: warmup-stable-decay, two data orders, Limited branches trained apart
    NEIGHBOURS = "neighbours"  # sec:related: every method of others on the branches of quick, and those that train
    DENSE = "dense"  # a dense model, whose branches Branch-Train-MiX can stack


def preset_study(preset: Preset, *, seeds: int | None = None) -> dict[str, Any]:
    """The study file of a preset, as data."""
    lr = LEARNING_RATE
    branches: dict[str, Any] = {
        "EXP1": {},
        "EXP2": {"seed": 1001},
        "EXP3": {  # per token the same noise and the same decay
            "peak_lr": round(lr / 2**0.5, 6),
            "global_batch": BATCH // 2,
            "weight_decay": round(WEIGHT_DECAY / 2**0.5, 4),
        },
    }
    quick = {
        "kind": "train",
        "fork_point": "builtin",
        "corpus": {"train_bytes": TRAIN_BYTES, "document_tokens": 128},
        "sequence_length": LENGTH,
        "horizon": HORIZON,
        "checkpoint_every": EVERY,
        "max_epochs": 100,
        "baseline": {"peak_lr": lr, "global_batch": BATCH, "weight_decay": WEIGHT_DECAY},
        "branches": branches,
        "evaluate": {
            "validation_tokens": 43_000,  # all 329 documents, as in the map: what is chosen on few is chosen by chance
            "test_tokens": 56_000,
            "probe_tokens": 8_000,
            "items": 100,
            "validation_items": 20,
            "ks": [1, 2, 4, 8, 12],
            "horizons": 4,
            "resamples": 4000,
        },
        "seeds": seeds or 1,
    }
    match preset:
        case Preset.QUICK:
            return quick
        case Preset.PAPER:
            all_five = {
                **branches,
                "EXP4": {"schedule": {"decay_to": lr / 10}},
                "EXP5": {"momentum": 0.9},
            }
            return {
                **quick,
                "branches": all_five,
                "evaluate": {
                    **quick["evaluate"],
                    "validation_tokens": 28_000,
                    "ks": [1, 2, 4, 8, 12, 16],
                    "items": 550,  # a paired difference of the Overall Average within 0.25 points
                    "validation_items": 50,
                    "sweep_items": 50,
                    "test_tokens": 103_000,
                    "resamples": 10_000,
                },
                "sweeps": "paper",
                "sft": {"items": 3000, "test_items": 500},
                "seeds": seeds or 5,
            }
        case Preset.WSD:
            wsd = {"shape": "wsd", "decay_to": lr / 10, "decay_share": 0.2}
            return {
                **quick,
                "baseline": {**quick["baseline"], "schedule": wsd},
                "branches": {"EXP1": {}, "EXP2": {"seed": 1001}},
                "evaluate": {**quick["evaluate"], "validation_tokens": 28_000},
                "limited": "apart",
                "seeds": seeds or 5,
            }
        case Preset.NEIGHBOURS:
            return {
                **quick,
                "sweeps": ["methods"],
                "neighbours": {
                    "diloco": {"workers": len(branches)},
                    "wsd": {},
                    "branch-train-merge": {"sources": list(DOMAINS)},
                },
                "seeds": seeds or 3,
            }
        case Preset.DENSE:
            return {
                **with_own_fork_point(quick, model=DENSE_MODEL, tokens=6_000_000),
                "branches": {"EXP1": {}, "EXP2": {"seed": 1001}},
                "sweeps": [],
                "neighbours": {
                    "branch-train-merge": {"sources": list(DOMAINS)},
                    "branch-train-mix": {"sources": list(DOMAINS), "router_tokens": 2 * EVERY},
                },
                "seeds": seeds or 3,
            }


def with_own_fork_point(
    study: dict[str, Any], *, model: Mapping[str, Any] = MODEL, tokens: int = 20_000_000
) -> dict[str, Any]:
    """The study with a fork point that each seed pretrains itself: without more, what the builtin ones come from."""
    recipe = {"peak_lr": 1e-2, "momentum": 0.9, "schedule": {"shape": "linear", "decay_to": 2e-4}}
    return {
        **{key: value for key, value in study.items() if key != "fork_point"},
        "pretrain": {"model": dict(model), "tokens": tokens, "recipe": recipe},
        "corpus": {**study["corpus"], "tokenizer": "builtin"},
    }


def write_preset(preset: Preset, folder: Path, *, seeds: int | None = None) -> Path:
    """Write <folder>/study.yaml; a folder that holds the same study is gone on with, another one is refused."""
    import yaml  # not before it is needed: every command knows the presets by name

    from trajsoup.store.yaml_file import decode_yaml, load_yaml

    path = folder / "study.yaml"
    data = yaml.safe_dump(preset_study(preset, seeds=seeds), sort_keys=False)
    if path.is_file():
        there, wanted = load_yaml(path), decode_yaml(data, where=path)
        if {"kind": wanted["kind"], **there, "seeds": 0} != {**wanted, "seeds": 0}:
            raise StudyError(f"{path} is another study than the preset {preset.value!r}: choose another --output")
        if there == wanted:
            return path
    elif folder.is_dir() and any(folder.iterdir()):
        raise StudyError(f"{folder} is not empty and holds no study.yaml: choose another --output")
    write_atomic(path, f"# The preset {preset.value!r} of trajsoup.\n{data}")
    return path
