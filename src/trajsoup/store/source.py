"""Read blocks of a file into reused buffers: through the page cache when it is warm, past it when it is cold.

A cold buffered read on two cores reaches a fifth to a half of what the disk gives, a direct read nearly all of it;
a warm direct read would go to the disk for bytes that memory holds. So a pass asks first how much is cached.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import itertools
import math
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from trajsoup.errors import CheckpointError
from trajsoup.store.open_files import OpenFiles
from trajsoup.store.regular import open_regular, opened
from trajsoup.store.remote import Place, RemotePath
from trajsoup.store.resident import ResidentFiles
from trajsoup.store.stored import ITEM_BYTES, Box, Part, Rectangle, Tensor, matrix

PAGE = 4096
DIRECT_READ_BYTES = 1 << 20  # what the disk wants in one request
WARM_SHARE = 0.9
O_DIRECT = getattr(os, "O_DIRECT", 0)
NO_DIRECT = (errno.EINVAL, errno.ENOTSUP)  # what file systems without it answer


class Reader:
    """Something that holds bytes. `read` may be called from many threads."""

    path: Place

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the bytes at `offset`; return where in the buffer they start, a multiple of `item_bytes`.

        The buffer needs two spare pages.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give back what is this reader's own."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Source(Reader):
    """One file: opened when it is first read, and again when `files`, which bounds how many are open, had to close it."""

    def __init__(self, path: Path, *, direct: bool = False, files: OpenFiles | None = None) -> None:
        self.path = self._file = path
        self._direct = direct and bool(O_DIRECT)
        self._files = files or OpenFiles(share=0.0)

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """The start is 0, except after a direct read, which begins at the page before."""
        if self._direct:
            shift = offset % PAGE
            wanted = shift + nbytes
            got = self._pread(buffer[: wanted + -wanted % PAGE], offset - shift, direct=True)
            if got >= wanted and shift % item_bytes == 0:
                return shift
            if got >= wanted:  # as in files of torch, whose tensors begin anywhere
                buffer[:nbytes] = buffer[shift : shift + nbytes]
                return 0
        view, done = buffer[:nbytes], 0
        while done < nbytes:
            got = self._pread(view[done:], offset + done)
            if got == 0:
                raise CheckpointError(f"{self.path} became shorter while it was read: is something writing to it?")
            done += got
        return 0

    def _pread(self, view: memoryview, offset: int, *, direct: bool = False) -> int:
        key = (self, direct)
        try:
            fd = self._files.take(key, lambda: open_regular(self._file, O_DIRECT if direct else 0))
        except OSError as error:
            if direct and error.errno in NO_DIRECT:
                self._direct = False  # a file system without direct I/O, as some network ones
                return 0
            reason = error.strerror or error
            raise CheckpointError(f"cannot open {self.path}: {reason}: check the path and its permissions") from error
        try:
            return os.preadv(fd, [view], offset)
        except OSError as error:
            if direct and error.errno in NO_DIRECT:
                return 0  # a file system that opens O_DIRECT but refuses this alignment: read buffered instead
            raise _failed(self.path, error) from error
        finally:
            self._files.give(key)

    def resident(self) -> float | None:
        """Share of a few sampled pages that the page cache holds; None where the system cannot tell."""
        flag = getattr(os, "RWF_NOWAIT", None)
        if flag is None:
            return None
        samples, hits = 8, 0
        buffer = bytearray(1)
        with reading(self.path), opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            for i in range(samples):
                try:
                    hits += os.preadv(file.fileno(), [buffer], size * i // samples, flag)
                except BlockingIOError:
                    pass
                except OSError:
                    return None
        return hits / samples

    def close(self) -> None:
        """Close the file."""
        self._files.close((self, False), (self, True))


class RemoteSource(Reader):
    """One object of a store, read by ranges. Connections belong to the store's client."""

    def __init__(self, path: RemotePath) -> None:
        self.path = self._object = path

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the bytes at `offset`, which then start at 0."""
        try:
            self._object.read_into(buffer[:nbytes], start=offset)
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path} disappeared while it was read: is something pruning it?") from error
        return 0


class MemorySource(Reader):
    """One file whose bytes are in memory, which belongs to whoever holds them."""

    def __init__(self, path: Place, held: bytes) -> None:
        self.path, self._held = path, memoryview(held)

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the bytes at `offset`, which then start at 0."""
        found = self._held[offset : offset + nbytes]
        if len(found) < nbytes:
            raise CheckpointError(f"{self.path} is shorter than its header says: is something writing to it?")
        buffer[:nbytes] = found
        return 0


class DecodedSource(Reader):
    """One encoded box: decoded when it is first read, let go after its last read."""

    def __init__(self, box: Box, file: Reader, *, dtype: str, wanted_bytes: int) -> None:
        """`wanted_bytes` says how much will be read of it in all."""
        self.path, self._box, self._file, self._left = file.path, box, file, wanted_bytes
        self._nbytes = math.prod(box.shape) * ITEM_BYTES[dtype]
        self._held: memoryview | None = None
        self._lock = threading.Lock()

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the decoded bytes at `offset`, which then start at 0."""
        with self._lock:
            held = self._held = self._held or self._decode()
            self._left -= nbytes
            if self._left <= 0:
                self._held = None
        buffer[:nbytes] = held[offset : offset + nbytes]
        return 0

    def _decode(self) -> memoryview:
        box, stored = self._box, aligned_buffer(self._box.nbytes + 2 * PAGE)
        assert box.codec is not None
        start = self._file.read(stored, offset=box.offset, nbytes=box.nbytes)
        where = f"{self.path} is damaged: the {box.nbytes:,} bytes at {box.offset:,}"
        try:
            raw = box.codec.decode(stored[start : start + box.nbytes], nbytes=self._nbytes)
        except ValueError as error:
            raise CheckpointError(f"{where} cannot be decoded ({error}). Copy or save it again") from error
        if len(raw) != self._nbytes:
            raise CheckpointError(
                f"{where} decode to {len(raw):,} bytes, a box of {list(box.shape)} has {self._nbytes:,}. Copy or save it "
                "again"
            )
        return memoryview(raw)


class GatheredSource(Reader):
    """A tensor whose rows are put together from its boxes, and its heads' rows in order, when a block is read."""

    def __init__(self, tensor: Tensor, files: Sequence[Reader]) -> None:
        found = matrix(tensor)
        first = files[tensor.boxes[0].file]
        if found is None:
            raise CheckpointError(
                f"{first.path}: a tensor of shape {list(tensor.shape)} cannot be read by rows: save it again"
            )
        self.path, self._files = first.path, files
        self._item = ITEM_BYTES[tensor.dtype]
        self._width, self._rectangles = found
        self._rows = math.prod(tensor.shape) // max(self._width, 1)
        self._head = tensor.head_rows
        self._ends = list(itertools.accumulate((r.row + r.rows for r in self._rectangles), max))
        self._own = threading.local()  # a buffer for each thread

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the bytes at `offset` of the tensor as it should be, which then start at 0."""
        row_bytes = self._width * self._item
        low, high = offset // row_bytes, -(-(offset + nbytes) // row_bytes)
        if self._head is not None:
            low, high = low - low % self._head, high + -high % self._head
        out = np.empty((high - low, row_bytes), np.uint8)
        at = bisect.bisect_right(self._ends, low)
        for rectangle in itertools.islice(self._rectangles, at, None):
            if rectangle.row >= high:
                break
            self._put(rectangle, out, low, high)
        if self._head is not None:  # pairs become halves
            out = out.reshape(-1, self._head // 2, 2, row_bytes).transpose(0, 2, 1, 3).reshape(out.shape)
        begin = offset - low * row_bytes
        buffer[:nbytes] = out.reshape(-1)[begin : begin + nbytes].data
        return 0

    def _put(self, rectangle: Rectangle, out: np.ndarray, low: int, high: int) -> None:
        row, rows, column, columns, box = rectangle
        begin, end = max(row, low), min(row + rows, high)
        if begin >= end:
            return
        wide, wanted = columns * self._item, (end - begin) * columns * self._item
        if len(getattr(self._own, "buffer", b"")) < wanted + 2 * PAGE:
            self._own.buffer = aligned_buffer(wanted + 2 * PAGE)
        held: memoryview = self._own.buffer
        start = self._files[box.file].read(held, offset=box.offset + (begin - row) * wide, nbytes=wanted)
        left = column * self._item
        part = np.frombuffer(held, np.uint8)[start : start + wanted].reshape(end - begin, wide)
        out[begin - low : end - low, left : left + wide] = part


class MadeSource(Reader):
    """A tensor that is computed by rows from its stored parts when a block is read."""

    def __init__(self, tensor: Tensor, files: Sequence[Reader], *, wanted_bytes: int) -> None:
        """`wanted_bytes` says how much will be read of it in all: then what was prepared is let go."""
        assert tensor.made is not None
        self.path, self._files = files[tensor.boxes[0].file].path, files
        self._made, self._left = tensor.made, wanted_bytes
        self._row_bytes = math.prod(tensor.shape[1:]) * ITEM_BYTES[tensor.dtype]
        self._prepared: tuple[Any] | None = None
        self._lock = threading.Lock()

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the computed bytes at `offset`, which then start at 0."""
        with self._lock:
            (prepared,) = self._prepared = self._prepared or (self._made.prepare(self._rows),)
            self._left -= nbytes
            if self._left <= 0:
                self._prepared = None
        low, high = offset // self._row_bytes, -(-(offset + nbytes) // self._row_bytes)
        made = self._made.rows(low, high, self._rows, prepared)
        begin = offset - low * self._row_bytes
        buffer[:nbytes] = made.reshape(-1).view(np.uint8)[begin : begin + nbytes].data
        return 0

    def _rows(self, part: Part, low: int, high: int) -> np.ndarray:
        wanted = (high - low) * part.row_bytes
        held = aligned_buffer(wanted + 2 * PAGE)
        start = self._files[part.box.file].read(held, offset=part.box.offset + low * part.row_bytes, nbytes=wanted)
        return np.frombuffer(held, np.uint8)[start : start + wanted]


def open_source(
    path: Place, *, direct: bool = False, resident: ResidentFiles | None = None, files: OpenFiles | None = None
) -> Reader:
    """A file or an object, or what memory holds of it. `direct` concerns files only, and so does `files`: a pass over
    many has them open through one."""
    held = None if resident is None else resident.get(path)
    if held is not None:
        return MemorySource(path, held)
    return RemoteSource(path) if isinstance(path, RemotePath) else Source(path, direct=direct, files=files)


def read_range(path: Place, start: int, end: int) -> bytes:
    """A few bytes of a file or an object."""
    if isinstance(path, RemotePath):
        return path.read_range(start, end)
    with opened(path) as file:
        file.seek(start)
        return file.read(end - start)


@contextlib.contextmanager
def reading(path: Place) -> Iterator[None]:
    """Name the file when reading it fails: the system's own error does not."""
    try:
        yield
    except OSError as error:
        raise _failed(path, error) from error


def _failed(path: Place, error: OSError) -> CheckpointError:
    return CheckpointError(f"reading {path} failed: {error.strerror or error}: check the disk or the mount")


def is_warm(paths: Sequence[Place]) -> bool:
    """Whether the page cache holds nearly all of these files (or cannot say, where direct reads are no option)."""
    shares: list[float] = []
    for path in paths:
        if isinstance(path, RemotePath):
            shares.append(1.0)
            continue
        with Source(path) as source:
            share = source.resident()
            shares.append(1.0 if share is None else share)
    return sum(shares) >= WARM_SHARE * len(shares)


def aligned_buffer(nbytes: int) -> memoryview:
    """Anonymous memory that starts on a page, as direct I/O needs it."""
    return memoryview(mmap.mmap(-1, nbytes))
