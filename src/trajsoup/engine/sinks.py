"""Where the blocks of an output go: files on disk, or memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from trajsoup.engine.kernels import BITS
from trajsoup.engine.layout import Layout
from trajsoup.store.digest import OrderedDigest, sha256_file
from trajsoup.store.source import PAGE, open_direct
from trajsoup.store.stored import FLOATS


class FileSink:
    """Writes one output into a folder. The leading bytes come last: until then no reader takes the file for whole."""

    waits = True

    def __init__(self, folder: Path, layout: Layout, *, digest: bool = True) -> None:
        self.folder, self.layout = folder, layout
        self._fds: list[int] = []
        self._direct: list[int | None] = []
        for file in layout.files:
            fd = os.open(folder / file.name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            self._fds.append(fd)
            self._direct.append(open_direct(folder / file.name, os.O_WRONLY))
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, file.header.file_bytes)  # a full disk says so now, not after hours
        in_order = layout.wide is None and not any(file.fixed for file in layout.files)
        plain = digest and in_order  # else they are hashed when they are whole
        self._digests = [OrderedDigest(start=file.lead) for file in layout.files] if plain else []
        self._hash_after = digest and not plain

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Write the block in place: past the page cache if it is whole pages, which is several times faster."""
        direct, done = self._direct[file], 0
        if direct is not None and offset % PAGE == 0 and len(block) % PAGE == 0:
            try:
                done = os.pwrite(direct, block, offset)
            except OSError as error:
                if error.errno != errno.EINVAL:  # the block is not aligned in memory: it goes through the cache instead
                    raise
        while done < len(block):
            done += os.pwrite(self._fds[file], block[done:], offset + done)
        if self._digests:
            self._digests[file].update(offset, block)

    def finish(self) -> Mapping[str, str]:
        """Flush the data, then make the files valid. Return each file's sha256, if it was asked for."""
        for fd, file in zip(self._fds, self.layout.files, strict=True):
            os.fsync(fd)
            for offset, piece in ((0, file.lead), *file.fixed):
                os.pwrite(fd, piece, offset)
            os.fsync(fd)
        if self._hash_after:
            return {file.name: sha256_file(self.folder / file.name) for file in self.layout.files}
        return {file.name: d.hexdigest() for file, d in zip(self.layout.files, self._digests, strict=False)}

    def cancel(self) -> None:
        """Let threads go that wait for their turn to hash."""
        for digest in self._digests:
            digest.cancel()

    def __enter__(self) -> FileSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in (*self._fds, *self._direct):
            if fd is not None:
                os.close(fd)


class MemorySink:
    """Keeps one output in memory, as the bytes of its files."""

    waits = False

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._data = [np.empty(file.header.file_bytes, np.uint8) for file in layout.files]

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Copy the block into place."""
        self._data[file][offset : offset + len(block)] = np.frombuffer(block, np.uint8)

    def cancel(self) -> None:
        """Nothing waits here."""

    def tensors(self) -> dict[str, np.ndarray]:
        """Every tensor by name, as an array. bf16, which numpy lacks, comes as its bits in uint16."""
        found: dict[str, np.ndarray] = {}
        for data, file in zip(self._data, self.layout.files, strict=True):
            for name, t in file.header.tensors.items():
                raw = data[t.offset : t.offset + t.nbytes]
                found[name] = raw.view(_numpy_dtype(t.dtype)).reshape(t.shape)
        return found


def _numpy_dtype(dtype: str) -> np.dtype:
    if dtype == "BF16":
        return BITS[dtype]
    if dtype in FLOATS:
        return np.dtype(f"f{BITS[dtype].itemsize}")
    kind = {"B": "?", "U": "u", "I": "i"}[dtype[0]]
    return np.dtype("?" if kind == "?" else f"{kind}{int(dtype[1:]) // 8}")
