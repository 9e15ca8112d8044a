"""Checkpoints for tests, written by the real safetensors library, and the numbers inside them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from trajsoup.store.checkpoint import Checkpoint, open_checkpoint

TORCH = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}


def bf16(values: Any) -> torch.Tensor:
    """The nearest bf16 numbers, as torch rounds them."""
    return torch.from_numpy(np.array(values, np.float32)).to(torch.bfloat16)


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    """The stored bits of a floating tensor as unsigned integers."""
    width = tensor.element_size()
    return tensor.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[width]).numpy().view(f"u{width}")


def write_checkpoint(
    path: Path,
    tensors: Mapping[str, torch.Tensor | np.ndarray],
    *,
    shards: int = 1,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a Hugging Face folder: weights in `shards` files (with an index if several), config.json, side files."""
    path.mkdir(parents=True, exist_ok=True)
    arrays = {n: t if isinstance(t, torch.Tensor) else torch.from_numpy(np.array(t)) for n, t in tensors.items()}
    if shards == 1:
        safetensors.torch.save_file(arrays, path / "model.safetensors", metadata={"format": "pt"})
    else:
        weight_map: dict[str, str] = {}
        for i in range(shards):
            file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
            part = {name: arrays[name] for name in list(arrays)[i::shards]}
            safetensors.torch.save_file(part, path / file, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(part, file)
        index = {"metadata": {"total_size": sum(t.nbytes for t in arrays.values())}, "weight_map": weight_map}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, text in ({"config.json": json.dumps(config)} if config is not None else {}).items():
        (path / name).write_text(text)
    for name, text in (files or {}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def write_raw(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
    """Write a safetensors file by hand: `header` as JSON, or as the bytes given; `length` lies about its size."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return path


def write_in_order(path: Path, tensors: Mapping[str, torch.Tensor | np.ndarray]) -> Path:
    """Write one file with the tensors in the given order, aligned to nothing: valid, though no library writes it so."""
    entries, data = {}, b""
    for name, tensor in tensors.items():
        (info,) = (i for _, i in safetensors.deserialize(safetensors.torch.save({name: torch.as_tensor(tensor)})))
        end = len(data) + len(info["data"])
        entries[name] = {"dtype": info["dtype"], "shape": info["shape"], "data_offsets": [len(data), end]}
        data += info["data"]
    return write_raw(path, entries, data)


def stored_bytes(checkpoint: Checkpoint, name: str) -> bytes:
    """The bytes of a tensor that lies in one box, read by hand."""
    (box,) = checkpoint.tensors[name].boxes
    return checkpoint.files[box.file].read_bytes()[box.offset : box.offset + box.nbytes]


def trajectory(
    folder: Path, *, count: int, items: int = 3000, dtype: str = "BF16", seed: int = 0, shards: int = 1
) -> dict[str, Checkpoint]:
    """Checkpoints of one branch: weights that drift a little from a common point, by key `c00`, `c01`, ..."""
    rng = np.random.default_rng(seed)
    start = rng.normal(0, 0.02, items)
    found: dict[str, Checkpoint] = {}
    for i in range(count):
        weights = torch.from_numpy(start + rng.normal(0, 0.002, items)).to(TORCH[dtype])
        tensors = {"embed": weights[: items // 3].reshape(-1, 1), "layer.w": weights[items // 3 :].clone()}
        found[f"c{i:02d}"] = open_checkpoint(write_checkpoint(folder / f"c{i:02d}", tensors, shards=shards))
    return found
