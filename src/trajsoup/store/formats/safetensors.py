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
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trajsoup.errors import CheckpointError
from trajsoup.store.digest import Algorithm
from trajsoup.store.formats.header_json import Described, quickly
from trajsoup.store.formats.header_json import weight_map as quick_weight_map
from trajsoup.store.json_file import decode_object, read_json_bytes
from trajsoup.store.remote import Place, RemotePath, place
from trajsoup.store.source import read_range, reading
from trajsoup.store.stored import ITEM_BYTES, Box, Signature, Stored, Tensor

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
        if INDEX not in names:
            return _stored(place, tuple(place / name for name in _shards(place, names)), folder=place)
        weight_map, raw = _read_index(place / INDEX, names)
        files = tuple(place / name for name in sorted({*weight_map.values()}))
        return _stored(place, files, folder=place, index=(place / INDEX, weight_map, raw))


def loose_files(folder: Place) -> list[Place]:
    """The files of a folder that are a checkpoint each, not shards of one."""
    names = _listing(folder)
    together = any(name in (INDEX, SINGLE, ADAPTER) or "-of-" in name for name in names)
    return [] if together else [folder / name for name in names]


def read_header(path: Place) -> Header:
    """Read and check the header of a safetensors file. Refuses whatever could make a later read go wrong."""
    raw, size = _raw_header(path)
    return parse_header(raw, path=path, file_bytes=size)


def _raw_header(path: Place) -> tuple[bytes, int]:
    """The bytes of a header, and of how many the file is."""
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
    return raw, size


def parse_header(raw: bytes, *, path: Place, file_bytes: int) -> Header:
    """Turn header bytes into a `Header`, checking every offset against the file's size."""
    if (found := quickly(raw)) is not None and (tensors := _in_order(found[0], 8 + len(raw), file_bytes)) is not None:
        return Header(tensors, found[1], 8 + len(raw), file_bytes)
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


def _in_order(described: Mapping[str, Described], position: int, file_bytes: int) -> dict[str, Entry] | None:
    """The tensors of a header whose bytes follow each other as they are listed; None where one is amiss, or empty."""
    found: dict[str, Entry] = {}
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}  # few: held once
    start = position
    for name, tensor in described.items():
        begin, end = tensor.data_offsets
        nbytes = math.prod(tensor.shape) * ITEM_BYTES.get(tensor.dtype, 0)
        if begin != position - start or not end - begin == nbytes > 0:
            return None
        found[name] = Entry(sys.intern(tensor.dtype), shapes.setdefault(tensor.shape, tensor.shape), position, nbytes)
        position += nbytes
    return found if position == file_bytes else None


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


class _Shared(Signature):
    """What equal headers say: the tensors, and the notes of the first file."""

    metadata: Mapping[str, str]


_SHARED: weakref.WeakValueDictionary[bytes, _Shared] = weakref.WeakValueDictionary()  # while a checkpoint has it
_PARSING = threading.Lock()  # checkpoints that are opened at once wait for the one that agrees with them


def _stored(
    path: Place, files: tuple[Place, ...], *, folder: Place, index: tuple[Place, Mapping[str, str], bytes] | None = None
) -> Stored:
    """Open the files that an index names, or that are all there are. Headers that are equal byte by byte to those of a
    checkpoint that is open are not parsed again: both have one signature."""
    read = _raw_headers(files)
    key = Algorithm.BLAKE3.new(
        json.dumps([[file.name for file in files], [(len(raw), size) for raw, size in read]]).encode()
    )
    for part in (*(raw for raw, _ in read), b"" if index is None else index[2]):
        key.update(part)
    with _PARSING:
        signature = _SHARED.get(key.digest())
        if signature is None:
            signature = _signature(path, files, read)
            if index is not None:
                _check_index(*index[:2], signature, files)
            _SHARED[key.digest()] = signature
    sizes = tuple(size for _, size in read)
    return Stored(files=files, sizes=sizes, tensors=signature, folder=folder, metadata=signature.metadata)


def _signature(path: Place, files: Sequence[Place], read: Sequence[tuple[bytes, int]]) -> _Shared:
    tensors = _Shared()
    origins: dict[int, tuple[int, ...]] = {}  # by the number of axes
    notes: list[Mapping[str, str]] = []
    for i, (raw, size) in enumerate(read):
        header = parse_header(raw, path=files[i], file_bytes=size)
        notes.append(header.metadata)
        starts = _saved_offsets(header, files[i])
        for name, (dtype, shape, offset, nbytes) in header.tensors.items():
            start = starts.get(name) or origins.setdefault(len(shape), (0,) * len(shape))
            piece = Tensor(dtype, shape, (Box(i, offset, nbytes, start, shape),))
            if name not in tensors:
                tensors[name] = piece
            elif name in starts and tensors[name].dtype == dtype:
                tensors[name] = tensors[name]._replace(boxes=tensors[name].boxes + piece.boxes)
            else:
                first = files[tensors[name].boxes[0].file].name
                raise CheckpointError(
                    f"{path}: tensor {name!r} is in both {first} and {files[i].name}: remove the stale file"
                )
    if any(DCP_OFFSETS in said for said in notes):
        tensors.update({name: tensor._replace(shape=_whole(tensor.boxes)) for name, tensor in tensors.items()})
    tensors.metadata = {key: value for key, value in (notes or [{}])[0].items() if not key.startswith("DCP_")}
    return tensors


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


def _raw_headers(files: Sequence[Place]) -> list[tuple[bytes, int]]:
    if len(files) > 1 and isinstance(files[0], RemotePath):  # each is a round trip or two
        with ThreadPoolExecutor(HEADER_REQUESTS) as pool:
            return list(pool.map(_raw_header, files))
    return [_raw_header(file) for file in files]


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
    """Which file an index gives each tensor, none of them outside the index's folder."""
    return _read_index(index, there)[0]


def _read_index(index: Place, there: Sequence[str]) -> tuple[dict[str, str], bytes]:
    """The same, and the bytes of the index."""
    raw = read_json_bytes(index, error=CheckpointError)
    weight_map: Any = quick_weight_map(raw)
    if weight_map is None:
        weight_map = decode_object(raw, where=index).get("weight_map")
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
    return weight_map, raw


def _check_index(index: Place, weight_map: Mapping[str, str], tensors: Signature, files: Sequence[Place]) -> None:
    names = [file.name for file in files]
    for name, tensor in tensors.items():
        listed, actual = weight_map.get(name), names[tensor.boxes[0].file]
        if listed != actual:
            raise CheckpointError(
                f"{index} puts tensor {name!r} into {listed!r}, but it is in {actual!r}: the index is stale; save the "
                "checkpoint again"
            )
    if len(weight_map) > len(tensors):
        lost = next(name for name in weight_map if name not in tensors)
        raise CheckpointError(f"{index} names tensor {lost!r}, which no file holds: it is stale")
