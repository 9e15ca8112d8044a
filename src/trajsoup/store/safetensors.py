"""The safetensors format: an 8-byte length, a JSON header, then the tensors' bytes without gaps.

The library of that name hands out tensors; averaging needs to know *where the bytes are*, so that a block can be read
past the page cache into a reused buffer. Hence this reader of headers, as strict as the library's: property tests
compare the two.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trajsoup.errors import CheckpointError
from trajsoup.store.remote import Place, RemotePath

FIRST_BYTES = 256 << 10  # of a remote file: nearly every header fits
MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
FLOATS = frozenset({"F16", "BF16", "F32", "F64"})  # averaged
EXACT = frozenset({"BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64"})  # must be equal, then copied


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a safetensors file holds, tensors in order of their bytes."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    data_offset: int = 0
    file_bytes: int = 0


def read_header(path: Place) -> Header:
    """Read and check the header of a safetensors file. Refuses whatever could make a later read go wrong."""
    if isinstance(path, RemotePath):
        return _read_remote_header(path)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            prefix = file.read(8)
            if len(prefix) < 8:
                raise _damaged(path, f"it has {size} bytes, too few for a safetensors file")
            (length,) = struct.unpack("<Q", prefix)
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise _damaged(path, f"its header claims {length:,} bytes in a file of {size:,}")
            raw = file.read(length)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}: check the path and its permissions") from error
    return parse_header(raw, path=path, file_bytes=size)


def _read_remote_header(path: RemotePath) -> Header:
    """One request for most headers, two for long ones."""
    size = path.stat().st_size
    start = path.read_range(0, min(size, FIRST_BYTES))
    if len(start) < 8:
        raise _damaged(path, f"it has {size} bytes, too few for a safetensors file")
    (length,) = struct.unpack("<Q", start[:8])
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise _damaged(path, f"its header claims {length:,} bytes in a file of {size:,}")
    raw = start[8 : 8 + length] + path.read_range(len(start), max(8 + length, len(start)))
    return parse_header(raw, path=path, file_bytes=size)


def parse_header(raw: bytes, *, path: Place, file_bytes: int) -> Header:
    """Turn header bytes into a `Header`, checking every offset against the file's size."""
    try:
        text = raw.decode("utf-8")
        entries: dict[str, Any] = json.loads(text, object_pairs_hook=_no_duplicates, parse_int=_natural)
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
    tensors = {name: _tensor(name, entry, data_offset, path) for name, entry in entries.items()}
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
        {name: Tensor(dtype, shape, start + offset, nbytes) for name, (dtype, shape, offset, nbytes) in sizes.items()},
        dict(metadata),
        start,
        start + position,
    )
    return struct.pack("<Q", len(raw)) + raw, header


def _tensor(name: str, entry: Any, data_offset: int, path: Place) -> Tensor:
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
    numbers = [*shape, begin, end] if isinstance(shape, list) else [None]
    if not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise _damaged(path, f"tensor {name!r} has a shape or offset that is not a small non-negative integer")
    if any(count >= 2**63 for count in itertools.accumulate(shape, operator.mul)):
        raise _damaged(path, f"tensor {name!r} has the shape {shape}, whose product overflows")
    nbytes = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != nbytes:
        raise _damaged(
            path, f"tensor {name!r} of {dtype} {shape} needs {nbytes:,} bytes, its offsets give {end - begin:,}"
        )
    return Tensor(dtype, tuple(shape), data_offset + begin, nbytes)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(n for n in names if names.count(n) > 1)!r}")
    return result


def _natural(digits: str) -> int:
    if digits.startswith("-"):  # "-0" too, which Python takes for 0 and the library for a float
        raise ValueError(f"negative number {digits}")
    return int(digits)


def _damaged(path: Place, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {what}. Copy or save it again")
