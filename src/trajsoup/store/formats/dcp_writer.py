"""A torch DCP folder made without torch: `.metadata`, and files in which every tensor is an archive of torch.save.

The numbers of a tensor begin at a whole page, so that blocks can be written past the page cache; what stands between them is
known before any number is. As with torch's own `set_crc32_options(False)` the checksums of tensors are left at zero, which
torch does not read.
"""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from trajsoup.errors import CheckpointError
from trajsoup.store.formats import safetensors
from trajsoup.store.formats.dcp import METADATA, MODULE, STORAGE_INFO, Chunk, Entry, read_metadata, split_weights
from trajsoup.store.formats.safetensors import Header
from trajsoup.store.formats.torch_archive import DTYPES, STORAGES
from trajsoup.store.pickles import Name, Record, pickled
from trajsoup.store.remote import Place
from trajsoup.store.source import PAGE, read_range, reading
from trajsoup.store.stored import ITEM_BYTES

FILE_BYTES = 5 * 10**9
COPY_BYTES = 16 << 20
OBJECTS = "_extra_state"  # of Megatron's layers: its loader wants them
_PREFIX = "archive/"
_LARGE = 0xFFFFFFFF
_NAMES = {dtype: name for name, dtype in reversed(DTYPES.items())}
_STORAGE = {dtype: name for name, dtype in reversed(STORAGES.items()) if dtype is not None}


@dataclass(frozen=True, slots=True)
class DcpFile:
    """One file to be: where its tensors lie, and the bytes around them."""

    name: str
    header: Header
    fixed: tuple[tuple[int, bytes], ...]  # (offset, bytes)


class Piece(NamedTuple):
    """Bytes of a file."""

    path: Place
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A file to be of pieces of others, one after another."""

    name: str
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(piece.length for piece in self.pieces)

    def write(self, folder: Path) -> None:
        """Copy the pieces, a block at a time."""
        with (folder / self.name).open("xb") as file:
            for path, offset, length in self.pieces:
                for begin in range(offset, offset + length, COPY_BYTES):
                    end = min(begin + COPY_BYTES, offset + length)
                    with reading(path):
                        raw = read_range(path, begin, end)
                    if len(raw) != end - begin:
                        raise CheckpointError(f"{path} ends before byte {end:,}: copy or save the checkpoint again")
                    file.write(raw)


@dataclass(frozen=True, slots=True)
class DcpFolder:
    """A folder to be."""

    files: tuple[DcpFile, ...]
    metadata: bytes
    copies: tuple[Copy, ...] = ()


def lay_out(
    folder: Place,
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    file_bytes: int | None = None,
    state_from: Place | None = None,
) -> DcpFolder:
    """Lay out tensors (dtype and shape by name) under the keys that the DCP `folder` has for them.

    All that the DCP folder `state_from` holds beside weights comes with them as it is: optimizer, scheduler, counters.
    """
    keys, others = split_weights(read_metadata(folder))
    if lost := next((name for name in tensors if name not in keys), None):
        raise CheckpointError(f"{folder} has no tensor {lost!r}: --format same needs ingredients of one framework")
    groups: list[list[str]] = [[]]
    used = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * ITEM_BYTES[dtype]
        if groups[-1] and used + size > (file_bytes or FILE_BYTES):
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += size
    files: list[DcpFile] = []
    listed: dict[str, Record] = {}
    places: dict[Record, Record] = {}
    for number, group in enumerate(groups):
        file = f"__0_{number}.distcp"
        position, found, fixed = 0, dict[str, safetensors.Entry](), list[tuple[int, bytes]]()
        for name in group:
            dtype, shape = tensors[name]
            lead, size, tail = _archive(dtype, shape)
            begin = position + len(lead)
            found[name] = safetensors.Entry(dtype, shape, begin, size)
            fixed += [(position, lead), (begin + size, tail)]
            end = begin + size + len(tail)
            chunk = Chunk((0,) * len(shape), shape, file, position, end - position)
            _list_tensor(replace(keys[name], dtype=dtype, shape=shape, chunks=(chunk,)), listed, places)
            position = end + -end % PAGE
        if number == 0:
            position = _copy_objects(folder, others, file, position, fixed, listed, places)
        files.append(DcpFile(file, Header(found, {}, 0, position), tuple(fixed)))
    known = {entry.key: entry for entry in (*keys.values(), *others)}
    copies: list[Copy] = []
    if state_from is not None:
        state = [entry for entry in split_weights(read_metadata(state_from))[1] if entry.key not in listed]
        copies = [_copy_state(state_from, state, f"__1_{len(groups)}.distcp", listed, places)]
        known |= {entry.key: entry for entry in state}
    paths = {key: entry.path for key, entry in known.items() if key in listed}
    root = {
        "state_dict_metadata": listed,
        "planner_data": paths if any(path != (key,) for key, path in paths.items()) else None,
        "storage_data": places,
        "storage_meta": None,
        "version": "1.0.0",
    }
    return DcpFolder(tuple(files), pickled(_made("Metadata", root)), tuple(copies))


def _made(kind: str, state: object) -> Record:
    return Record(MODULE + kind, (), state)


def _list_tensor(entry: Entry, listed: dict[str, Record], places: dict[Record, Record]) -> None:
    assert entry.dtype is not None
    properties = (
        Name(_NAMES[entry.dtype]),
        Record("torch.serialization._get_layout", ("torch.strided",)),
        False,
        Record(MODULE + "_MEM_FORMAT_ENCODING", (0,)),
        False,
    )
    pieces = [_made("ChunkStorageMetadata", {"offsets": _size(c.start), "sizes": _size(c.shape)}) for c in entry.chunks]
    listed[entry.key] = _made(
        "TensorStorageMetadata",
        {"properties": _made("TensorProperties", properties), "size": _size(entry.shape), "chunks": pieces},
    )
    for number, chunk in enumerate(entry.chunks):
        index = _made("MetadataIndex", {"fqn": entry.key, "offset": _size(chunk.start), "index": number})
        places[index] = _info(chunk.file, chunk.offset, chunk.length)


def _list_object(key: str, chunk: Chunk, listed: dict[str, Record], places: dict[Record, Record]) -> None:
    listed[key] = _made("BytesStorageMetadata", {})
    index = _made("MetadataIndex", {"fqn": key, "offset": None, "index": None})
    places[index] = _info(chunk.file, chunk.offset, chunk.length)


def _info(file: str, offset: int, length: int) -> Record:
    state = {"relative_path": file, "offset": offset, "length": length, "transform_descriptors": None}
    return Record(STORAGE_INFO, (), state)


def _size(numbers: Sequence[int]) -> Record:
    return Record("torch.Size", (tuple(numbers),))


def _archive(dtype: str, shape: tuple[int, ...]) -> tuple[bytes, int, bytes]:
    """What stands before a tensor's numbers, their bytes, and what stands after."""
    items = math.prod(shape)
    size = items * ITEM_BYTES[dtype]
    strides = tuple(itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1))[::-1] if shape else ()
    empty = Record("collections.OrderedDict")
    if dtype in _STORAGE:
        storage = Record("persistent", (("storage", Name(_STORAGE[dtype]), "0", "cpu", items),))
        tensor = Record("torch._utils._rebuild_tensor_v2", (storage, 0, shape, strides, False, empty))
    else:
        storage = Record("persistent", (("storage", Name("torch.storage.UntypedStorage"), "0", "cpu", size),))
        args = (storage, 0, shape, strides, False, empty, Name(_NAMES[dtype]))
        tensor = Record("torch._utils._rebuild_tensor_v3", args)
    lead, directory, count = b"", b"", 0
    for name, content in (("data.pkl", pickled(tensor)), ("byteorder", b"little"), ("version", b"3\n")):
        local, listed = _entry(_PREFIX + name, len(content), zlib.crc32(content), at=len(lead), pad=0)
        lead, directory, count = lead + local + content, directory + listed, count + 1
    plain, _ = _entry(_PREFIX + "data/0", size, 0, at=len(lead), pad=0)
    local, listed = _entry(_PREFIX + "data/0", size, 0, at=len(lead), pad=4 + -(len(lead) + len(plain) + 4) % PAGE)
    lead, directory, count = lead + local, directory + listed, count + 1
    return lead, size, directory + _end(count, len(directory), len(lead) + size)


def _entry(name: str, size: int, crc: int, *, at: int, pad: int) -> tuple[bytes, bytes]:
    """An entry's local header, with `pad` more bytes, and its line in the list at the end."""
    raw = name.encode()
    wide = struct.pack("<2H2Q", 1, 16, size, size) if size >= _LARGE else b""
    padding = struct.pack("<2H", 0x4246, pad - 4) + b"Z" * (pad - 4) if pad else b""  # as torch itself pads
    shown = min(size, _LARGE)
    version = 45 if wide else 20
    common = struct.pack("<5H3L", version, 0, 0, 0, 0x21, crc, shown, shown)
    local = b"PK\x03\x04" + common + struct.pack("<2H", len(raw), len(wide) + len(padding)) + raw + wide + padding
    lengths = struct.pack("<5H2L", len(raw), len(wide), 0, 0, 0, 0, at)
    return local, b"PK\x01\x02" + struct.pack("<H", version) + common + lengths + raw + wide


def _end(count: int, size: int, offset: int) -> bytes:
    """The end of an archive, with the 64-bit record where its list begins beyond 4 GiB."""
    wide = b""
    if offset >= _LARGE:
        record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
        wide = record + struct.pack("<4sLQL", b"PK\x06\x07", 0, offset + size, 1)
    return wide + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, min(offset, _LARGE), 0)


def _copy_objects(
    folder: Place,
    others: Sequence[Entry],
    file: str,
    position: int,
    fixed: list[tuple[int, bytes]],
    listed: dict[str, Record],
    places: dict[Record, Record],
) -> int:
    """Objects of the model that are no tensors, as the folder has them; return where they end."""
    for entry in others:
        if entry.dtype is not None or OBJECTS not in entry.key:
            continue
        (chunk,) = entry.chunks
        path = folder / chunk.file
        with reading(path):
            raw = read_range(path, chunk.offset, chunk.offset + chunk.length)
        fixed.append((position, raw))
        _list_object(entry.key, replace(chunk, file=file, offset=position, length=len(raw)), listed, places)
        position += len(raw)
    return position


def _copy_state(
    folder: Place, state: Sequence[Entry], file: str, listed: dict[str, Record], places: dict[Record, Record]
) -> Copy:
    """List what is no weight under a file of its own: the chunks as they are, one after another."""
    pieces: list[Piece] = []
    position = 0
    for entry in state:
        chunks: list[Chunk] = []
        for chunk in entry.chunks:
            path = folder / chunk.file
            if not path.is_file() or chunk.offset + chunk.length > path.stat().st_size:
                raise CheckpointError(
                    f"{path} lacks what {folder / METADATA} says of {entry.key!r}: copy or save it again"
                )
            pieces.append(Piece(path, chunk.offset, chunk.length))
            chunks.append(replace(chunk, file=file, offset=position))
            position += chunk.length
        if entry.dtype is None:
            _list_object(entry.key, chunks[0], listed, places)
        else:
            _list_tensor(replace(entry, chunks=tuple(chunks)), listed, places)
    return Copy(file, tuple(pieces))
