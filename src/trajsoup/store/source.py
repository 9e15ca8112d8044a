"""Read blocks of a file into reused buffers: through the page cache when it is warm, past it when it is cold.

A cold buffered read on two cores reaches a fifth to a half of what the disk gives, a direct read nearly all of it;
a warm direct read would go to the disk for bytes that memory holds. So a pass asks first how much is cached.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from trajsoup.errors import CheckpointError
from trajsoup.store.remote import Place, RemotePath
from trajsoup.store.resident import ResidentFiles

PAGE = 4096
DIRECT_READ_BYTES = 1 << 20  # what the disk wants in one request
WARM_SHARE = 0.9


class Source:
    """One open file. `read` may be called from many threads."""

    def __init__(self, path: Path, *, direct: bool = False) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise CheckpointError(
                f"cannot open {path}: {error.strerror}: check the path and its permissions"
            ) from error
        self._direct = open_direct(path, os.O_RDONLY) if direct else None

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the bytes at `offset`; return where in the buffer they start.

        The start is 0, except after a direct read, which begins at the page before: then it is a multiple of
        `item_bytes`, so that the caller can look at the buffer as numbers. The buffer needs two spare pages.
        """
        if self._direct is not None and offset % PAGE % item_bytes == 0:
            start = offset - offset % PAGE
            wanted = offset % PAGE + nbytes
            got = self._pread(self._direct, buffer[: wanted + -wanted % PAGE], start)
            if got >= wanted:
                return offset % PAGE
        view, done = buffer[:nbytes], 0
        while done < nbytes:
            got = self._pread(self._fd, view[done:], offset + done)
            if got == 0:
                raise CheckpointError(f"{self.path} became shorter while it was read: is something writing to it?")
            done += got
        return 0

    def _pread(self, fd: int, view: memoryview, offset: int) -> int:
        try:
            return os.preadv(fd, [view], offset)
        except OSError as error:
            if error.errno == errno.EINVAL and fd == self._direct:
                return 0  # a file system that opens O_DIRECT but refuses this alignment: read buffered instead
            raise _failed(self.path, error) from error

    def resident(self) -> float | None:
        """Share of a few sampled pages that the page cache holds; None where the system cannot tell."""
        flag = getattr(os, "RWF_NOWAIT", None)
        if flag is None:
            return None
        size, samples, hits = os.fstat(self._fd).st_size, 8, 0
        buffer = bytearray(1)
        for i in range(samples):
            try:
                hits += os.preadv(self._fd, [buffer], size * i // samples, flag)
            except BlockingIOError:
                pass
            except OSError:
                return None
        return hits / samples

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
        if self._direct is not None:
            os.close(self._direct)

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RemoteSource:
    """One object of a store, read by ranges. `read` may be called from many threads."""

    def __init__(self, path: RemotePath) -> None:
        self.path = path

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the bytes at `offset`, which then start at 0."""
        try:
            buffer[:nbytes] = self.path.read_range(offset, offset + nbytes)
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path} disappeared while it was read: is something pruning it?") from error
        return 0

    def __enter__(self) -> RemoteSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Connections belong to the store's client."""


class MemorySource:
    """One file whose bytes are in memory. `read` may be called from many threads."""

    def __init__(self, path: Place, held: bytes) -> None:
        self.path, self._held = path, memoryview(held)

    def read(self, buffer: memoryview, *, offset: int, nbytes: int, item_bytes: int = 1) -> int:
        """Fill `buffer` with the bytes at `offset`, which then start at 0."""
        found = self._held[offset : offset + nbytes]
        if len(found) < nbytes:
            raise CheckpointError(f"{self.path} is shorter than its header says: is something writing to it?")
        buffer[:nbytes] = found
        return 0

    def __enter__(self) -> MemorySource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The memory belongs to whoever holds the file."""


def open_source(
    path: Place, *, direct: bool = False, resident: ResidentFiles | None = None
) -> Source | RemoteSource | MemorySource:
    """Open a file or an object, or what memory holds of it. `direct` concerns files only."""
    held = None if resident is None else resident.get(path)
    if held is not None:
        return MemorySource(path, held)
    return RemoteSource(path) if isinstance(path, RemotePath) else Source(path, direct=direct)


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


def open_direct(path: Path, mode: int) -> int | None:
    """A descriptor past the page cache, or None where the file system has none (some network file systems)."""
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        return None
    with contextlib.suppress(OSError):
        return os.open(path, mode | flag)
    return None
