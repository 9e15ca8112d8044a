"""Studies that come with the package: `quick` for `trajsoup demo`, `paper` for the whole protocol.

Chosen by the criterion of docs/regime.md, which looks at validation and at no soup. Positions are multiples of one
step of the largest batch, so that every branch saves at the same tokens.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from trajsoup.errors import StudyError
from trajsoup.store.publish import write_atomic

LENGTH, BATCH = 128, 32
STEP = LENGTH * BATCH
EVERY = 60 * STEP  # tokens between checkpoints, as in the map
LEARNING_RATE = 1.5e-3  # of mid-training: the highest at which the merged serial run is flat and EXP3 passes the screen
CORPUS = {"vocab_size": 320, "limit_bytes": 12_000_000}  # bytes and a few merges
TINY = {
    "family": "deepseek_v3",
    "hidden_size": 16,
    "intermediate_size": 48,
    "moe_intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "n_routed_experts": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
}
SMALLER = {**TINY, "hidden_size": 12, "intermediate_size": 36, "moe_intermediate_size": 4}


class Preset(StrEnum):
    """Studies by name."""

    QUICK = "quick"  # about four minutes on two idle cores
    PAPER = "paper"  # five branches, every sweep, fine-tuning, several seeds
    WSD = "wsd"  # tab:e32a8-mid-train-main: a smaller model, warmup-stable-decay, two data orders


def preset_study(preset: Preset, *, seeds: int | None = None) -> dict[str, Any]:
    """The study file of a preset, as data."""
    lr = LEARNING_RATE
    branches: dict[str, Any] = {
        "EXP1": {},
        "EXP2": {"seed": 1001},
        "EXP3": {"peak_lr": round(lr / 2**0.5, 6), "global_batch": BATCH // 2},
    }
    quick = {
        "kind": "train",
        "pretrain": _pretrain(9_000_000),
        "corpus": CORPUS,
        "sequence_length": LENGTH,
        "horizon": 16 * EVERY,
        "checkpoint_every": EVERY,
        "baseline": {"peak_lr": lr, "global_batch": BATCH},
        "branches": branches,
        "evaluate": {
            "validation_tokens": 30_000,
            "test_tokens": 100_000,
            "probe_tokens": 20_000,
            "ks": [1, 2, 4, 8],
            "horizons": 2,
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
                "pretrain": _pretrain(24_000_000),
                "horizon": 24 * EVERY,
                "evaluate": {
                    **quick["evaluate"],
                    "ks": [1, 2, 4, 8, 12],
                    "horizons": 4,
                    "items": 40,
                    "validation_tokens": 50_000,
                    "test_tokens": 200_000,
                    "resamples": 10_000,
                },
                "sweeps": "paper",
                "sft": {"items": 1000, "seeds": 2},
                "seeds": seeds or 5,
            }
        case Preset.WSD:
            wsd = {"shape": "wsd", "decay_to": lr / 10, "decay_share": 0.2}
            return {
                **quick,
                "pretrain": _pretrain(9_000_000, model=SMALLER),
                "baseline": {**quick["baseline"], "schedule": wsd},
                "branches": {"EXP1": {}, "EXP2": {"seed": 1001}},
            }


def _pretrain(tokens: int, *, model: dict[str, Any] = TINY) -> dict[str, Any]:
    """A fork point whose learning rate has decayed, so that mid-training begins where pretraining stopped paying."""
    recipe = {"peak_lr": 1e-2, "momentum": 0.9, "schedule": {"shape": "linear", "decay_to": 2e-4}}
    return {"model": model, "tokens": tokens, "recipe": recipe}


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
