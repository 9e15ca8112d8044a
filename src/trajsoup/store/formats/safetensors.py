"""The safetensors format: one file, or a folder of them with an index. A tensor is one box, stored as it is, but for the
shards that torch's DCP writes for Hugging Face, whose headers say where in the whole tensor each piece belongs.

A file is an 8-byte length, a JSON header, then the tensors' bytes without gaps. The library of that name hands out
tensors; averaging needs to know *where the bytes are*, so that a block can be read past the page cache into a reused
buffer. Hence this reader of headers, as strict as the library's: property tests compare the two.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trajsoup.errors import CheckpointError
from trajsoup.store.json_file import load_json
from trajsoup.store.remote import Place, RemotePath, place
from trajsoup.store.source import read_range, reading
from trajsoup.store.stored import ITEM_BYTES, Box, Stored, Tensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SUFFIX = ".safetensors"
ADAPTER = "adapter_model.safetensors"  # of PEFT
HEADER_REQUESTS = 16  # at once, to an object store
FIRST_BYTES = 256 << 10  # of a remote file, in the first request: nearly every header fits
MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
DCP_OFFSETS = "DCP_SHARDING_INFO"  # in a header's metadata: by tensor, where its piece begins
_SHARD = re.compile(r"-of-(?P<count>\d+)\.safetensors$")


class Entry(NamedTuple):
    """Where one tensor lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a safetensors file holds, tensors in order of their bytes."""

    tensors: Mapping[str, Entry]
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    data_offset: int = 0
    file_bytes: int = 0


class Safetensors:
    """The format of the table in formats/__init__.py."""

    name = "safetensors"

    def recognises(self, place: Place) -> bool:
        """A file that begins as one, whatever its name. One that only bears the name is claimed too: `open` will say
        what is wrong with it, where passing over it would lose a checkpoint in silence."""
        if place.is_file():
            return place.suffix == SUFFIX or _begins_as_one(place)
        return place.is_dir() and bool(_listing(place))

    def open(self, place: Place) -> Stored:
        """Read every header, and compare them with the index and the names of shards."""
        if place.is_file():
            return _stored(place, (place,), folder=place.parent)
        names = _listing(place)
        weight_map = weight_map_of(place / INDEX, names) if INDEX in names else {}
        chosen = dict.fromkeys(weight_map.values()) if INDEX in names else _shards(place, names)
        stored = _stored(place, tuple(place / name for name in chosen), folder=place)
        if INDEX in names:
            _check_index(place / INDEX, weight_map, stored)
        return stored


def loose_files(folder: Place) -> list[Place]:
    """The files of a folder that are a checkpoint each, not shards of one."""
    names = _listing(folder)
    together = any(name in (INDEX, SINGLE, ADAPTER) or "-of-" in name for name in names)
    return [] if together else [folder / name for name in names]


def read_header(path: Place) -> Header:
    """Read and check the header of a safetensors file. Refuses whatever could make a later read go wrong."""
    try:
        size = path.stat().st_size
        start = read_range(path, 0, min(size, FIRST_BYTES if isinstance(path, RemotePath) else 8))
        if len(start) < 8:
            raise _damaged(path, f"it has {size} bytes, too few for a safetensors file")
        (length,) = struct.unpack("<Q", start[:8])
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise _damaged(path, f"its header claims {length:,} bytes in a file of {size:,}")
        raw = start[8 : 8 + length] + read_range(path, len(start), max(8 + length, len(start)))
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"cannot read {path}: {reason}: check the path and its permissions") from error
    return parse_header(raw, path=path, file_bytes=size)


def parse_header(raw: bytes, *, path: Place, file_bytes: int) -> Header:
    """Turn header bytes into a `Header`, checking every offset against the file's size."""
    try:
        text = raw.decode("utf-8")
        parse_int = _natural if "-" in text else int
        entries: dict[str, Any] = json.loads(text, object_pairs_hook=_no_duplicates, parse_int=parse_int)
        if "\\u" in text:  # an escape can spell half a surrogate pair, which no file could be written with
            json.dumps(entries, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not valid JSON ({error})") from error
    if not isinstance(entries, dict):
        raise _damaged(path, "its header is not a JSON object")
    metadata: Any = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _damaged(path, "its __metadata__ is not a map of strings")
    data_offset = 8 + len(raw)
    tensors = {name: _entry(name, entry, data_offset, path) for name, entry in entries.items()}
    ordered = dict(sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].nbytes, item[0])))
    position = data_offset
    for name, tensor in ordered.items():
        if tensor.offset != position:
            raise _damaged(path, f"tensor {name!r} starts at byte {tensor.offset:,}, expected {position:,}")
        position += tensor.nbytes
    if position != file_bytes:
        raise _damaged(path, f"its tensors end at byte {position:,}, but the file has {file_bytes:,}")
    return Header(ordered, metadata, data_offset, file_bytes)


def build_header(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]], *, metadata: Mapping[str, str], align: int = 4096
) -> tuple[bytes, Header]:
    """Lay out `(name, dtype, shape)` in the given order; return the leading bytes and the header they describe.

    The header is padded with spaces so that the data start on a multiple of `align`: direct I/O needs it.
    """
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    sizes: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    position = 0
    for name, dtype, shape in tensors:
        nbytes = math.prod(shape) * ITEM_BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + nbytes]}
        sizes[name] = (dtype, shape, position, nbytes)
        position += nbytes
    raw = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-(8 + len(raw)) % align)
    start = 8 + len(raw)
    header = Header(
        {name: Entry(dtype, shape, start + offset, nbytes) for name, (dtype, shape, offset, nbytes) in sizes.items()},
        dict(metadata),
        start,
        start + position,
    )
    return struct.pack("<Q", len(raw)) + raw, header


def _entry(name: str, entry: Any, data_offset: int, path: Place) -> Entry:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise _damaged(path, f"tensor {name!r} lacks dtype, shape or data_offsets") from error
    if len(entry) != 3:
        raise _damaged(path, f"tensor {name!r} has fields beyond dtype, shape and data_offsets")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise CheckpointError(
            f"{path}: tensor {name!r} has the dtype {dtype!r}, which cannot be averaged: convert the checkpoint to "
            "bf16, fp16, fp32 or fp64 first"
        )
    numbers: list[Any] = [*shape, begin, end] if isinstance(shape, list) else [None]
    if {*map(type, numbers)} != {int} or not 0 <= min(numbers) <= max(numbers) < 2**63:
        raise _damaged(path, f"tensor {name!r} has a shape or offset that is not a small non-negative integer")
    items = math.prod(shape)
    if items >= 2**63 or (items == 0 and max(itertools.accumulate(shape, operator.mul)) >= 2**63):
        raise _damaged(path, f"tensor {name!r} has the shape {shape}, whose product overflows")
    nbytes = items * ITEM_BYTES[dtype]
    if end - begin != nbytes:
        raise _damaged(
            path, f"tensor {name!r} of {dtype} {shape} needs {nbytes:,} bytes, its offsets give {end - begin:,}"
        )
    return Entry(dtype, tuple(shape), data_offset + begin, nbytes)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"duplicate key {twice!r:.200}")
    return result


def _natural(digits: str) -> int:
    if digits.startswith("-"):  # "-0" too, which Python takes for 0 and the library for a float
        raise ValueError(f"negative number {digits}")
    return int(digits)


def _damaged(path: Place, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {what}. Copy or save it again")


def _stored(path: Place, files: tuple[Place, ...], *, folder: Place) -> Stored:
    headers = _headers(files)
    tensors: dict[str, Tensor] = {}
    for i, header in enumerate(headers):
        starts = _saved_offsets(header, files[i])
        for name, (dtype, shape, offset, nbytes) in header.tensors.items():
            piece = Tensor(dtype, shape, (Box(i, offset, nbytes, starts.get(name, (0,) * len(shape)), shape),))
            if name not in tensors:
                tensors[name] = piece
            elif name in starts and tensors[name].dtype == dtype:
                tensors[name] = tensors[name]._replace(boxes=tensors[name].boxes + piece.boxes)
            else:
                first = files[tensors[name].boxes[0].file].name
                raise CheckpointError(
                    f"{path}: tensor {name!r} is in both {first} and {files[i].name}: remove the stale file"
                )
    tensors = {name: tensor._replace(shape=_whole(tensor.boxes)) for name, tensor in tensors.items()}
    sizes = tuple(header.file_bytes for header in headers)
    metadata = headers[0].metadata if headers else {}
    metadata = {key: value for key, value in metadata.items() if not key.startswith("DCP_")}
    return Stored(files=files, sizes=sizes, tensors=tensors, folder=folder, metadata=metadata)


def _saved_offsets(header: Header, path: Place) -> dict[str, tuple[int, ...]]:
    """Where the pieces of a file begin in their tensors; empty for all but DCP's shards."""
    if DCP_OFFSETS not in header.metadata:
        return {}
    try:
        listed = json.loads(header.metadata[DCP_OFFSETS])
        found = {name: tuple(listed[name]["saved_offsets"]) for name in header.tensors}
        if not all(type(n) is int and 0 <= n < 2**62 for start in found.values() for n in start):
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path, f"its {DCP_OFFSETS} does not say where each tensor begins") from error
    for name, tensor in header.tensors.items():
        if len(found[name]) != len(tensor.shape):
            raise _damaged(
                path, f"its {DCP_OFFSETS} gives {name!r} {len(found[name])} axes, it has {len(tensor.shape)}"
            )
    return found


def _whole(boxes: Sequence[Box]) -> tuple[int, ...]:
    """The shape of a tensor of which all pieces are there."""
    if len(boxes) == 1 and not any(boxes[0].start):
        return boxes[0].shape
    ends = [[i + n for i, n in zip(box.start, box.shape, strict=True)] for box in boxes]
    return tuple(max(end) for end in zip(*ends, strict=True))


def _headers(files: Sequence[Place]) -> tuple[Header, ...]:
    if len(files) > 1 and isinstance(files[0], RemotePath):  # each is a round trip or two
        with ThreadPoolExecutor(HEADER_REQUESTS) as pool:
            return tuple(pool.map(read_header, files))
    return tuple(read_header(file) for file in files)


def _begins_as_one(path: Place) -> bool:
    with reading(path):
        size = path.stat().st_size
        start = read_range(path, 0, min(size, 9))
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") <= min(MAX_HEADER_BYTES, size - 8)


def _listing(folder: Place) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.name.endswith((SUFFIX, INDEX)))


def _shards(folder: Place, names: Sequence[str]) -> Sequence[str]:
    """Which files are the checkpoint, where no index says so."""
    if SINGLE in names:
        return (SINGLE,)
    if not names:
        raise CheckpointError(f"{folder} holds no safetensors file any more: is something pruning it?")
    if len(names) > 1 and not all("-of-" in name for name in names):
        raise CheckpointError(
            f"{folder} holds {len(names)} safetensors files and no {INDEX}: name one file, or add the index"
        )
    named = [match for name in names if (match := _SHARD.search(name))]
    for match in named:  # model-00001-of-00003 has two brothers
        have = sum(other["count"] == match["count"] for other in named)
        if have < int(match["count"]):
            raise CheckpointError(
                f"{folder} holds {have} of {int(match['count'])} shards and no {INDEX}: it is incomplete; copy or save "
                "the checkpoint again"
            )
    return names


def weight_map_of(index: Place, there: Sequence[str]) -> dict[str, str]:
    """Which file an index gives each tensor, in the order of the files, none of them outside the index's folder."""
    weight_map = load_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise CheckpointError(f"{index} has no weight_map of strings: save the checkpoint again")
    for file in set(weight_map.values()):
        if Path(file).name != file:
            raise CheckpointError(f"{index} names {file!r:.200}, which is outside its folder: it must not be trusted")
        if "\0" in file:
            raise CheckpointError(f"{index} names {file!r:.200}, which is missing: no file can be called so")
        place(file)  # is a name
        if file not in there and not (index.parent / file).is_file():
            raise CheckpointError(f"{index} names {file!r}, which is missing: copy the checkpoint again")
    if SINGLE in there and SINGLE not in weight_map.values():  # transformers would load the one, we the others
        raise CheckpointError(
            f"{index.parent} holds both {SINGLE} and {INDEX}, which does not name it: one of them is stale; remove it, "
            f"or name {index.parent / SINGLE} itself"
        )
    return dict(sorted(weight_map.items(), key=lambda item: item[1]))


def _check_index(index: Place, weight_map: dict[str, str], stored: Stored) -> None:
    for name, tensor in stored.tensors.items():
        listed, actual = weight_map.pop(name, None), stored.files[tensor.boxes[0].file].name
        if listed != actual:
            raise CheckpointError(
                f"{index} puts tensor {name!r} into {listed!r}, but it is in {actual!r}: the index is stale; save the "
                "checkpoint again"
            )
    if weight_map:
        raise CheckpointError(f"{index} names tensor {next(iter(weight_map))!r}, which no file holds: it is stale")
