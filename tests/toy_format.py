"""A checkpoint format of another package: raw pieces of tensors in files, and a JSON that lists them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trajsoup.store.json_file import load_json
from trajsoup.store.remote import Place
from trajsoup.store.stored import Box, Stored, Tensor

LISTING = "pieces.json"
DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}


@dataclass(frozen=True)
class Zlib:
    """Bytes that zlib has compressed."""

    def decode(self, stored: memoryview, *, nbytes: int) -> bytes:
        try:
            return zlib.decompressobj().decompress(stored, nbytes + 1)  # no more, whatever the file would unfold to
        except zlib.error as error:
            raise ValueError(str(error)) from error


class Toy:
    """Knows its listing by what is in it."""

    name = "toy"

    def recognises(self, place: Place) -> bool:
        return (place / LISTING).is_file() and "pieces" in load_json(place / LISTING)

    def open(self, place: Place) -> Stored:
        listing = load_json(place / LISTING)
        files = tuple(place / name for name in [LISTING, *listing["files"]])
        tensors = {
            name: Tensor(entry["dtype"], tuple(entry["shape"]), tuple(_box(*piece) for piece in entry["boxes"]))
            for name, entry in listing["pieces"].items()
        }
        return Stored(files=files, sizes=tuple(f.stat().st_size for f in files), tensors=tensors, folder=place)


def _box(file: int, offset: int, nbytes: int, start: list[int], shape: list[int], codec: str | None) -> Box:
    return Box(file, offset, nbytes, tuple(start), tuple(shape), Zlib() if codec == "zlib" else None)


def write_toy(
    folder: Path,
    tensors: Mapping[str, torch.Tensor | np.ndarray],
    *,
    axis: int = 0,
    pieces: int = 3,
    codec: str | None = None,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write tensors in `pieces` boxes along `axis` (or their last), the last one first, in turn into two files."""
    (folder / "data").mkdir(parents=True)
    contents = [bytearray(b"head"), bytearray()]
    listed: dict[str, Any] = {}
    for name, tensor in tensors.items():
        whole = torch.as_tensor(tensor)
        along = min(axis, whole.dim() - 1)
        boxes: list[Any] = []
        start = 0
        for part in [whole] if along < 0 else torch.tensor_split(whole, pieces, dim=along):
            raw = part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            stored = zlib.compress(raw) if codec == "zlib" else raw
            number = len(boxes) % 2
            origin = [start if k == along else 0 for k in range(whole.dim())]
            boxes.append([number + 1, len(contents[number]), len(stored), origin, list(part.shape), codec])
            contents[number] += stored
            start += part.shape[along] if along >= 0 else 0
        listed[name] = {"dtype": DTYPES[whole.dtype], "shape": list(whole.shape), "boxes": boxes[::-1]}
    names = ["data/0.raw", "data/1.raw"]
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_bytes(content)
    (folder / LISTING).write_text(json.dumps({"files": names, "pieces": listed}))
    for name, text in {**({} if config is None else {"config.json": json.dumps(config)}), **(files or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def change_listing(folder: Path, name: str, change: Any) -> None:
    """Let `change` have its way with the boxes that the listing gives a tensor."""
    listing = json.loads((folder / LISTING).read_text())
    change(listing["pieces"][name]["boxes"])
    (folder / LISTING).write_text(json.dumps(listing))
