"""Make checkpoints to measure with: a Llama-shaped bf16 model in shards, each checkpoint a little off the others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from trajsoup.store.formats.safetensors import build_header

HIDDEN, FEED_FORWARD, VOCAB = 2048, 5632, 32000
LAYER_BYTES = 2 * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * FEED_FORWARD + 2 * HIDDEN)


def make_checkpoints(
    root: Path, *, count: int, checkpoint_bytes: int, shards: int = 4, vocab: int = VOCAB
) -> list[Path]:
    """Write `count` checkpoints of about `checkpoint_bytes` each, or reuse those that are there.

    A smaller vocabulary makes smaller checkpoints: with the default one, a single layer comes to 365 MB.
    """
    other_bytes = 2 * (2 * vocab * HIDDEN + HIDDEN)
    layers = max(round((checkpoint_bytes - other_bytes) / LAYER_BYTES), 1)
    small = "" if vocab == VOCAB else f"-vocab{vocab}"
    folder = root / f"{count}x{layers}layers-{shards}shards{small}"
    paths = [folder / f"checkpoint-{100 * (i + 1)}" for i in range(count)]
    for i, path in enumerate(paths):
        if not (path / "done").exists():
            _make(path, layers=layers, shards=shards, seed=i, vocab=vocab)
            (path / "done").touch()
    return paths


def make_plain(root: Path, *, count: int, tensors: int, items: int, shards: int, alike: bool = True) -> list[Path]:
    """Checkpoints of so many equal tensors of expert-like names; unless they are `alike`, no header equals another."""
    paths = [root / f"checkpoint-{i}" for i in range(count)]
    for seed, path in enumerate(paths):
        path.mkdir(parents=True)
        tile = np.random.default_rng(seed).integers(0x3C00, 0x3F00, 1 << 20, dtype=np.uint16).tobytes()
        weight_map: dict[str, str] = {}
        for i in range(shards):
            own = range(i, tensors, shards)
            names = [f"model.layers.{j // 1000}.mlp.experts.{j % 1000}.up_proj.weight" for j in own]
            file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
            notes = {"format": "pt"} if alike else {"format": "pt", "step": f"{seed:04d}"}
            lead, header = build_header([(name, "BF16", (items,)) for name in names], metadata=notes, align=8)
            with (path / file).open("wb") as handle:
                handle.write(lead)
                left = header.file_bytes - len(lead)
                while left > 0:
                    left -= handle.write(tile[:left])
            weight_map |= dict.fromkeys(names, file)
        if shards > 1:
            (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        (path / "config.json").write_text("{}")
    return paths


def _make(path: Path, *, layers: int, shards: int, seed: int, vocab: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    tensors = _shapes(layers, vocab)
    total = sum(np.prod(shape) for shape in tensors.values())
    groups: list[dict[str, tuple[int, ...]]] = [{}]
    used = 0
    for name, shape in tensors.items():
        if used > total / shards and len(groups) < shards:
            groups.append({})
            used = 0
        groups[-1][name] = shape
        used += np.prod(shape)
    base = np.random.default_rng(0).standard_normal(1 << 22, np.float32) * 0.02
    step = np.random.default_rng(1000 + seed).standard_normal(1 << 22, np.float32) * 0.001
    tile = ((base + step).view(np.uint32) >> 16).astype(np.uint16)
    weight_map = {}
    for i, group in enumerate(groups):
        name = f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors"
        lead, header = build_header([(n, "BF16", s) for n, s in group.items()], metadata={"format": "pt"}, align=8)
        with (path / name).open("wb") as file:
            file.write(lead)
            left = header.file_bytes - len(lead)
            while left > 0:
                left -= file.write(tile.tobytes()[:left])
        weight_map |= dict.fromkeys(group, name)
    index = {"metadata": {"total_size": int(total) * 2}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "config.json").write_text(json.dumps(_config(layers, vocab)))


def _shapes(layers: int, vocab: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, HIDDEN)}
    for i in range(layers):
        prefix = f"model.layers.{i}."
        shapes |= {f"{prefix}self_attn.{p}_proj.weight": (HIDDEN, HIDDEN) for p in "qkvo"}
        shapes |= {f"{prefix}mlp.{p}_proj.weight": (FEED_FORWARD, HIDDEN) for p in ("gate", "up")}
        shapes[f"{prefix}mlp.down_proj.weight"] = (HIDDEN, FEED_FORWARD)
        shapes |= {f"{prefix}{p}_layernorm.weight": (HIDDEN,) for p in ("input", "post_attention")}
    return shapes | {"model.norm.weight": (HIDDEN,), "lm_head.weight": (vocab, HIDDEN)}


def _config(layers: int, vocab: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
