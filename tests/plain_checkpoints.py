"""Checkpoints written with numpy alone: tests of hostile and of very many files need neither torch nor its seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trajsoup.store.formats.safetensors import INDEX, SINGLE, build_header

TENSORS = {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.ones(4, "f4")}


def write_plain(
    folder: Path,
    tensors: Mapping[str, np.ndarray] = TENSORS,
    *,
    shards: int = 1,
    files: Mapping[str, str] | None = None,
) -> Path:
    """A folder of F32 tensors in one file, or in as many as there are shards."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(tensors)
    places = [SINGLE] if shards == 1 else [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    for i, place in enumerate(places):
        mine = names[i::shards]
        lead, _ = build_header([(n, "F32", tensors[n].shape) for n in mine], metadata={}, align=8)
        (folder / place).write_bytes(lead + b"".join(tensors[n].astype("<f4").tobytes() for n in mine))
    if shards > 1:
        weight_map = {name: places[i % shards] for i, name in enumerate(names)}
        total = sum(t.size * 4 for t in tensors.values())
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
