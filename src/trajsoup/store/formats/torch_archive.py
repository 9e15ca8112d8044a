"""What torch.save leaves: a zip of `data.pkl`, which says what the tensors are, and one stored file for each storage.

A sharded checkpoint holds one such zip for each chunk, one after another in a longer file; hence `start` and `length`.
Only the ends are read: the list of files at the end, `data.pkl`, and each storage's local header, which says where its
bytes begin. Nothing is decompressed: torch stores, and a compressed entry is refused.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trajsoup.errors import CheckpointError
from trajsoup.store.pickles import MAX_BYTES, Name, Record, unpickle
from trajsoup.store.remote import Place
from trajsoup.store.source import read_range, reading
from trajsoup.store.stored import ITEM_BYTES

EDGE_BYTES = 4096  # of each end, in one request: all that is needed of a small archive
SIGNATURE = b"PK\x03\x04"
DTYPES = {
    "torch.bfloat16": "BF16", "torch.float16": "F16", "torch.float32": "F32", "torch.float64": "F64",
    "torch.half": "F16", "torch.float": "F32", "torch.double": "F64",
    "torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2", "torch.float8_e8m0fnu": "F8_E8M0",
    "torch.float8_e4m3fnuz": "F8_E4M3FNUZ", "torch.float8_e5m2fnuz": "F8_E5M2FNUZ",
    "torch.bool": "BOOL", "torch.uint8": "U8", "torch.int8": "I8", "torch.int16": "I16", "torch.uint16": "U16",
    "torch.int32": "I32", "torch.uint32": "U32", "torch.int64": "I64", "torch.uint64": "U64", "torch.long": "I64",
    "torch.complex64": "C64",
}  # fmt: skip
STORAGES = {
    "torch.BFloat16Storage": "BF16", "torch.HalfStorage": "F16", "torch.FloatStorage": "F32",
    "torch.DoubleStorage": "F64", "torch.BoolStorage": "BOOL", "torch.ByteStorage": "U8", "torch.CharStorage": "I8",
    "torch.ShortStorage": "I16", "torch.IntStorage": "I32", "torch.LongStorage": "I64",
    "torch.ComplexFloatStorage": "C64", "torch.storage.UntypedStorage": None, "torch.UntypedStorage": None,
}  # fmt: skip
PARAMETERS = frozenset({"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"})
TENSORS = frozenset(
    {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"}
)
SUBCLASSED = (
    "torch._tensor._rebuild_from_type_v2"  # of a tensor with attributes: (function, type, arguments, attributes)
)
# Beside tensors: what trainers keep with them, and what says nothing of where weights lie.
BESIDE = frozenset(
    {
        "__builtin__.bytes",
        "__builtin__.set",
        "_codecs.encode",
        "argparse.Namespace",
        "builtins.set",
        "collections.Counter",
        "collections.OrderedDict",
        "collections.defaultdict",
        "builtins.dict",
        "builtins.int",
        "builtins.list",
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        "numpy.core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy.dtype",
        "numpy.ndarray",
        "pathlib.PosixPath",
        "pathlib._local.PosixPath",
        "torch.Size",
        "torch.device",
        "torch.serialization._get_layout",
        "types.SimpleNamespace",
    }
)
_TYPES = ("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter")
KNOWN = frozenset({*DTYPES, *STORAGES, *PARAMETERS, *TENSORS, *BESIDE, SUBCLASSED, *_TYPES})


class TensorPlace(NamedTuple):
    """A tensor in an archive: its numbers, from byte `offset` of the file on, with `strides` if not row after row."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    codec: Permuted | None = None


@dataclass(frozen=True, slots=True)
class Permuted:
    """The numbers of a tensor whose axes were swapped before it was saved."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in numbers
    item_bytes: int

    def decode(self, stored: memoryview, *, nbytes: int) -> bytes:
        """Row after row."""
        numbers = np.frombuffer(stored, f"V{self.item_bytes}")
        strides = [stride * self.item_bytes for stride in self.strides]
        return np.lib.stride_tricks.as_strided(numbers, self.shape, strides).tobytes()


def begins_as_archive(path: Place) -> bool:
    """Whether a file is a zip whose first entry is a data.pkl."""
    with reading(path):
        start = read_range(path, 0, 512)
    if len(start) < 30 or not start.startswith(SIGNATURE):
        return False
    (length,) = struct.unpack_from("<H", start, 26)
    return start[30 : 30 + length].endswith(b"/data.pkl")


class Archive:
    """One zip in a file. `tree` is what torch.load would return, with `Record`s for tensors (see `place_of`)."""

    def __init__(
        self, path: Place, *, start: int = 0, length: int | None = None, known: frozenset[str] = KNOWN
    ) -> None:
        with reading(path):
            size = path.stat().st_size if length is None else start + length
        self.path, self.start, self.length = path, start, size - start
        self.where = str(path) if length is None else f"{path} at byte {start:,}"
        if start < 0 or self.length < 22:
            raise self.damaged("it is too short for an archive of torch")
        self._head = self._fetch(0, min(EDGE_BYTES, self.length))
        self._tail_at = max(self.length - EDGE_BYTES, 0)
        self._tail = self._fetch(self._tail_at, self.length)
        self._entries = self._list()
        pickled = next((name for name in self._entries if name.endswith("/data.pkl")), None)
        if pickled is None or not self._head.startswith(SIGNATURE):
            raise self.damaged("it is no archive of torch")
        self._prefix = pickled.removesuffix("data.pkl")
        if self._content("byteorder", limit=16) not in (None, b"little"):
            raise CheckpointError(f"{self.where} was written on a big-endian machine: convert it to safetensors there")
        raw = self._content("data.pkl", limit=MAX_BYTES)
        assert raw is not None
        self.tree: Any = _tree(raw, known, self.where)

    def place_of(self, value: Any) -> TensorPlace | None:
        """Where the numbers of a tensor lie; None for whatever is no tensor."""
        if isinstance(value, Record) and value.kind == SUBCLASSED and len(value.args) == 4:
            function, _, args, _ = value.args
            value = Record(str(function), args) if isinstance(args, tuple) else None
        if isinstance(value, Record) and value.kind in PARAMETERS and value.args:
            value = value.args[0]
        if not isinstance(value, Record) or value.kind not in TENSORS:
            return None
        try:
            return self._place(value)
        except (IndexError, TypeError, ValueError) as error:
            raise self.damaged("it describes a tensor that cannot be") from error

    def _place(self, record: Record) -> TensorPlace:
        storage, first, shape, strides = record.args[:4]
        (tag, kind, key, _, _) = storage.args[0]
        if storage.kind != "persistent" or tag != "storage" or not isinstance(key, str):
            raise ValueError
        dtype = STORAGES.get(kind)
        if record.kind.endswith("_v3"):
            dtype = DTYPES.get(record.args[6])
        if dtype is None or not isinstance(kind, Name):
            raise ValueError
        if not all(type(n) is int and 0 <= n < 2**62 for n in (first, *shape, *strides)) or len(shape) != len(strides):
            raise ValueError
        item, items = ITEM_BYTES[dtype], math.prod(shape)
        begin, size = self._data(f"data/{key}")
        if items >= 2**62 or (first + items) * item > size:
            raise self.damaged(
                f"a tensor of {dtype} {list(shape)} begins at number {first:,} of a storage of {size:,} bytes"
            )
        place = TensorPlace(dtype, tuple(shape), begin + first * item, items * item)
        if items == 0 or _row_after_row(shape, strides):
            return place
        order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
        if not _row_after_row([shape[a] for a in order], [strides[a] for a in order]):
            raise CheckpointError(
                f"{self.where}: a tensor of shape {list(shape)} is a view with strides {list(strides)} into a longer one: "
                "save it again as a tensor of its own (clone, or contiguous)"
            )
        return place._replace(codec=Permuted(tuple(shape), tuple(strides), item))

    def damaged(self, what: str) -> CheckpointError:
        """An error that names the archive."""
        return CheckpointError(f"{self.where} is damaged: {what}. Copy or save it again")

    def _fetch(self, begin: int, end: int) -> bytes:
        with reading(self.path):
            found = read_range(self.path, self.start + begin, self.start + end)
        if len(found) != end - begin:
            raise self.damaged(f"it ends before byte {self.start + end:,}")
        return found

    def _read(self, begin: int, size: int) -> bytes:
        if begin < 0 or size < 0 or begin + size > self.length:
            raise self.damaged("its list of files points outside it")
        if begin + size <= len(self._head):
            return self._head[begin : begin + size]
        if begin >= self._tail_at:
            return self._tail[begin - self._tail_at : begin - self._tail_at + size]
        return self._fetch(begin, begin + size)

    def _list(self) -> dict[str, tuple[int, int]]:
        """The central directory: by name, where the local header begins, and the bytes of the content."""
        end = self.length - 22
        signature, disk, first_disk, _, count, size, offset, comment = struct.unpack("<4s4H2LH", self._read(end, 22))
        if signature != b"PK\x05\x06" or comment or disk or first_disk:
            raise self.damaged("no list of files stands at its end")
        if end >= 20 and self._read(end - 20, 4) == b"PK\x06\x07":
            (wide,) = struct.unpack_from("<Q", self._read(end - 20, 20), 8)
            record = self._read(wide, 56)
            if record[:4] != b"PK\x06\x06":
                raise self.damaged("no list of files stands at its end")
            count, size, offset = struct.unpack_from("<3Q", record, 32)
        if offset + size > end or size < 46 * count or size > MAX_BYTES:
            raise self.damaged("its list of files cannot be where it says")
        raw, found, position = self._read(offset, size), dict[str, tuple[int, int]](), 0
        try:
            for _ in range(count):
                name, at, nbytes, step = _entry(raw, position)
                if name in found:
                    raise ValueError(f"{name!r} is there twice")
                found[name] = (at, nbytes)
                position += step
        except (struct.error, ValueError) as error:
            raise self.damaged(f"its list of files cannot be read ({error})") from error
        self._directory = offset
        return found

    def _data(self, name: str) -> tuple[int, int]:
        """Where in the file an entry's content begins, and its bytes."""
        entry = self._entries.get(self._prefix + name)
        if entry is None:
            raise self.damaged(f"it lacks {name}")
        at, size = entry
        header = self._read(at, 30)
        names, extra = struct.unpack_from("<2H", header, 26)
        begin = at + 30 + names + extra
        if header[:4] != SIGNATURE or begin + size > self._directory:
            raise self.damaged(f"{name} is not where its list of files says")
        return self.start + begin, size

    def _content(self, name: str, *, limit: int) -> bytes | None:
        if self._prefix + name not in self._entries:
            return None
        begin, size = self._data(name)
        if size > limit:
            raise self.damaged(f"{name} has {size:,} bytes, more than {limit:,}")
        return self._read(begin - self.start, size)


def _entry(raw: bytes, position: int) -> tuple[str, int, int, int]:
    fields = struct.unpack_from("<4s6H3L5H2L", raw, position)
    signature, method, packed, size, names, extra, comment, at = (*fields[:1], fields[4], *fields[8:13], fields[16])
    if signature != b"PK\x01\x02":
        raise ValueError("an entry has no signature")
    begin = position + 46
    name = raw[begin : begin + names].decode("utf-8")
    more = raw[begin + names : begin + names + extra]
    wide = {"size": size, "packed": packed, "at": at}
    if 0xFFFFFFFF in wide.values():
        wide = _wide(more, wide)
    if method != 0 or wide["packed"] != wide["size"] or fields[3] & 1:
        raise ValueError(f"{name!r} is compressed or encrypted")
    return name, wide["at"], wide["size"], 46 + names + extra + comment


def _wide(extra: bytes, fields: Mapping[str, int]) -> dict[str, int]:
    """The fields of an entry that need 64 bits, from its extra field number 1."""
    found, position = dict(fields), 0
    while position + 4 <= len(extra):
        number, size = struct.unpack_from("<2H", extra, position)
        if number == 1:
            at = position + 4
            for name, value in fields.items():
                if value == 0xFFFFFFFF:
                    (found[name],) = struct.unpack_from("<Q", extra, at)
                    at += 8
            return found
        position += 4 + size
    return found  # exactly 4 GiB less a byte


def _row_after_row(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


@functools.lru_cache(maxsize=4096)
def _cached(raw: bytes, known: frozenset[str]) -> Any:
    return unpickle(raw, known=known, where="")


def _tree(raw: bytes, known: frozenset[str], where: str) -> Any:
    """Chunks of equal shape have the same pickle: each is read once."""
    try:
        if len(raw) <= EDGE_BYTES:
            return _cached(raw, known)
    except CheckpointError:
        pass  # once more, with its place in the message
    return unpickle(raw, known=known, where=where)
