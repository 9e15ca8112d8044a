"""Orbax's checkpoints (JAX, MaxText), read by the library tensorstore (the extra `orbax`).

`_METADATA` lists a tree of arrays; each is a zarr of compressed chunks in one database (OCDBT) or in folders. A box is a
chunk, and its codec asks tensorstore for it: where its bytes lie is the library's own affair. A chunk is decoded once and let
go after its last number, so memory is that of the chunks in use.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajsoup.errors import CheckpointError, install
from trajsoup.store.formats.training_state import MODEL, is_state
from trajsoup.store.json_file import load_json
from trajsoup.store.remote import Place
from trajsoup.store.stored import FLOATS, ITEM_BYTES, Box, Stored, Tensor

METADATA = "_METADATA"
ITEMS = ("default", "state", "items", "params", "model_params")  # where managers put the folder in theirs
UNFINISHED = ".orbax-checkpoint-tmp"
MAX_CHUNKS = 5_000_000
MAX_CHUNK_BYTES = 8 << 30
_ARRAYS = ("jax.Array", "np.ndarray", "scalar")
_DTYPES = {
    "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL", "int8": "I8", "uint8": "U8",
    "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip

Keys = tuple[str, ...]  # of the tree, from the outermost on


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of an array as tensorstore hands it out (`stored.Codec`)."""

    folder: str
    zarr3: bool
    ocdbt: bool
    name: str
    start: tuple[int, ...]
    shape: tuple[int, ...]

    def decode(self, stored: memoryview, *, nbytes: int) -> bytes:
        """The numbers, row after row. No byte of the file is given, and none is needed."""
        import numpy as np

        try:
            array = _array(self.folder, self.zarr3, self.ocdbt, self.name)
            part = array[tuple(slice(i, i + n) for i, n in zip(self.start, self.shape, strict=True))]
            return np.ascontiguousarray(part.read(order="C").result()).tobytes()
        except (ValueError, OSError, RuntimeError) as error:
            raise ValueError(_one_line(error)) from error


class Orbax:
    """The format of the table in formats/__init__.py."""

    name = "Orbax"

    def recognises(self, place: Place) -> bool:
        """A finished folder whose metadata lists a tree, or a manager's step folder around one."""
        return place.is_dir() and _folder(place) is not None

    def open(self, place: Place) -> Stored:
        """Ask for every array's shape and chunks."""
        folder = _folder(place)
        if folder is None:
            raise CheckpointError(f"{place} holds no {METADATA} of Orbax any more: is something pruning it?")
        if not isinstance(folder, Path):
            raise CheckpointError(f"{place} is in a store, and Orbax is read from a file system: copy it here first")
        metadata = load_json(folder / METADATA)
        zarr3, ocdbt = metadata.get("use_zarr3") is True, (folder / "manifest.ocdbt").is_file()
        listed, others = _listed(metadata, where=str(folder))
        there = _keys(folder) if ocdbt else None
        arrays: dict[Keys, tuple[str, Any]] = {}
        for keys in listed:
            name = ".".join(keys)
            try:
                arrays[keys] = name, _array(str(folder.absolute()), zarr3, ocdbt, name)
            except (ValueError, OSError, RuntimeError) as error:
                raise CheckpointError(
                    f"{folder} is damaged: array {name!r} cannot be opened ({_one_line(error)}). Copy or save it again"
                ) from error
        floating = {keys: _dtype(name, a, folder) in FLOATS and bool(a.rank) for keys, (name, a) in arrays.items()}
        names = weight_names(floating)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        whole = metadata.get("store_array_data_equal_to_fill_value") is True  # else what is absent is zero
        tensors: dict[str, Tensor] = {}
        for keys, name in names.items():
            stored_name, array = arrays[keys]
            boxes = tuple(_boxes(str(folder.absolute()), zarr3, ocdbt, stored_name, array, folder))
            if whole:
                _require_chunks(folder, stored_name, array, boxes, zarr3=zarr3, there=there)
            tensors[name] = Tensor(_dtype(stored_name, array, folder), tuple(array.shape), boxes)
        return Stored(
            files=tuple(files),
            sizes=tuple(path.stat().st_size for path in files),
            tensors=tensors,
            folder=folder,
            left_out=tuple(sorted([*(".".join(keys) for keys in arrays if keys not in names), *others])),
        )


def weight_names(found: Mapping[Keys, bool]) -> dict[Keys, str]:
    """Names of the weights. `found` says of each array whether it could be one; words such as `params` are taken off."""
    ours = {keys: weighty for keys, weighty in found.items() if not is_state(keys)}
    weights = [keys for keys, weighty in ours.items() if weighty]
    depth = 0
    while weights and all(
        len(keys) > depth + 1 and keys[depth] == weights[0][depth] and keys[depth] in MODEL for keys in weights
    ):
        depth += 1
    return {keys: ".".join(keys[depth:]) for keys in ours if weights and keys[:depth] == weights[0][:depth]}


def _listed(metadata: Mapping[str, Any], *, where: str) -> tuple[list[Keys], list[str]]:
    """The arrays of the tree, and the names of what is none."""
    found: list[Keys] = []
    others: list[str] = []
    try:
        for entry in metadata["tree_metadata"].values():
            keys = tuple(str(part["key"]) for part in entry["key_metadata"])
            value = entry["value_metadata"]
            if value["value_type"] in _ARRAYS and not value.get("skip_deserialize"):
                found.append(keys)
            else:
                others.append(".".join(keys))
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{where}/{METADATA} is damaged: it lists no tree. Copy or save it again") from error
    if any(not keys or any("/" in key or key in ("", ".", "..") for key in keys) for keys in found):
        raise CheckpointError(f"{where}/{METADATA} names an array outside its folder: it must not be trusted")
    if len({".".join(keys) for keys in found}) != len(found):
        raise CheckpointError(f"{where}/{METADATA} is damaged: it names an array twice. Copy or save it again")
    return found, others


def _boxes(folder: str, zarr3: bool, ocdbt: bool, name: str, array: Any, where: Place) -> Iterator[Box]:
    shape, dtype = tuple(array.shape), _dtype(name, array, where)
    if 0 in shape:
        yield Box(0, 0, 0, (0,) * len(shape), shape)
        return
    chunk = tuple(array.chunk_layout.read_chunk.shape)
    counts = [-(-size // step) if step > 0 else 0 for size, step in zip(shape, chunk, strict=True)]
    if not all(counts) or math.prod(counts) > MAX_CHUNKS:
        raise CheckpointError(f"{where} is damaged: array {name!r} has chunks of {list(chunk)}. Copy or save it again")
    if math.prod(map(min, shape, chunk)) * ITEM_BYTES[dtype] > MAX_CHUNK_BYTES:
        raise CheckpointError(
            f"{where}: array {name!r} has chunks of {list(chunk)}, too large to hold: save smaller ones"
        )
    for numbers in itertools.product(*map(range, counts)):
        start = tuple(n * step for n, step in zip(numbers, chunk, strict=True))
        size = tuple(min(step, whole - i) for step, whole, i in zip(chunk, shape, start, strict=True))
        yield Box(0, 0, 0, start, size, Chunk(folder, zarr3, ocdbt, name, start, size))


def _require_chunks(
    folder: Path, name: str, array: Any, boxes: tuple[Box, ...], *, zarr3: bool, there: frozenset[str] | None
) -> None:
    """tensorstore takes a chunk that is absent for zeros."""
    steps = array.chunk_layout.write_chunk.shape
    between = array.spec().to_json().get("metadata", {}).get("dimension_separator") or "."
    for box in boxes if 0 not in array.shape else ():
        numbers = [str(i // step) for i, step in zip(box.start, steps, strict=True)]
        own = "/".join(["c", *numbers]) if zarr3 else between.join(numbers) or "0"
        key = f"{name}/{own}"
        if not (key in there if there is not None else (folder / key).is_file()):
            raise CheckpointError(f"{folder} is damaged: it lacks the chunk {key!r}. Copy or save it again")


def _dtype(name: str, array: Any, where: Place) -> str:
    found = _DTYPES.get(array.dtype.name)
    if found is None:
        raise CheckpointError(
            f"{where}: array {name!r} is of {array.dtype.name}, which is not known here: save it in another"
        )
    return found


def _keys(folder: Path) -> frozenset[str]:
    ts = _tensorstore()
    try:
        store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{folder.absolute()}/"}).result()
        return frozenset(key.decode("utf-8", "replace") for key in store.list().result())
    except (ValueError, OSError, RuntimeError) as error:
        raise CheckpointError(f"{folder} is damaged ({_one_line(error)}). Copy or save it again") from error


@functools.lru_cache(maxsize=1024)
def _array(folder: str, zarr3: bool, ocdbt: bool, name: str) -> Any:
    ts = _tensorstore()
    store = (
        {"driver": "ocdbt", "base": f"file://{folder}/", "path": f"{name}/"}
        if ocdbt
        else {"driver": "file", "path": f"{folder}/{name}/"}
    )
    spec = {"driver": "zarr3" if zarr3 else "zarr", "kvstore": store}
    return ts.open(spec, open=True, read=True).result()


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError as error:
        raise CheckpointError(f"reading Orbax needs tensorstore: {install('orbax')}") from error
    return tensorstore


def _folder(place: Place) -> Place | None:
    if UNFINISHED in place.name:
        return None
    for folder in (place, *(place / name for name in ITEMS)):
        path = folder / METADATA
        if path.is_file() and "tree_metadata" in load_json(path):
            return folder
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
