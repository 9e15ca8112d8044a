"""Where the blocks of an output go: files on disk, or memory."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from trajsoup.engine.kernels import BITS
from trajsoup.engine.layout import Layout
from trajsoup.errors import BlendError
from trajsoup.store.digest import Algorithm, OrderedDigest, sha256_file
from trajsoup.store.open_files import OpenFiles
from trajsoup.store.source import NO_DIRECT, O_DIRECT, PAGE
from trajsoup.store.stored import FLOATS

MOST_AXES = 32  # of an array of numpy, in all its versions
SINK_SHARE = 0.125  # of the files that the process may have open


class FileSink:
    """Writes one output into a folder. The leading bytes come last: until then no reader takes the file for whole."""

    waits = True

    def __init__(self, folder: Path, layout: Layout, *, digest: bool = True) -> None:
        self.folder, self.layout = folder, layout
        self._files = OpenFiles(share=SINK_SHARE, parting=os.fsync)
        self._aligned = bool(O_DIRECT)
        for number, file in enumerate(layout.files):
            with self._opened(number, os.O_CREAT | os.O_EXCL) as fd:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, file.header.file_bytes)  # a full disk says so now, not after hours
        in_order = layout.wide is None and not any(file.fixed for file in layout.files)
        plain = digest and in_order  # else they are hashed when they are whole
        self._digests = [OrderedDigest(Algorithm.SHA256, start=file.lead) for file in layout.files] if plain else []
        self._hash_after = digest and not plain

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Write the block in place: past the page cache if it is whole pages, which is several times faster."""
        done = 0
        if self._aligned and offset % PAGE == 0 and len(block) % PAGE == 0:
            try:
                with self._opened(file, O_DIRECT) as direct:
                    done = os.pwrite(direct, block, offset)
            except OSError as error:
                if error.errno not in NO_DIRECT:  # no direct I/O here, or the block is not aligned in memory
                    raise
        while done < len(block):
            with self._opened(file) as fd:
                done += os.pwrite(fd, block[done:], offset + done)
        if self._digests:
            self._digests[file].update(offset, block)

    def finish(self) -> Mapping[str, str]:
        """Flush the data, then make the files valid. Return each file's sha256, if it was asked for."""
        for number, file in enumerate(self.layout.files):
            with self._opened(number) as fd:
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
        self._files.close()

    @contextlib.contextmanager
    def _opened(self, number: int, flags: int = 0) -> Iterator[int]:
        key, path = (number, flags == O_DIRECT), self.folder / self.layout.files[number].name
        fd = self._files.take(key, lambda: os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644))
        try:
            yield fd
        finally:
            self._files.give(key)


class MemorySink:
    """Keeps one output in memory, as the bytes of its files."""

    waits = False

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._data = [_fresh(file.header.file_bytes) for file in layout.files]

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
                if len(t.shape) > MOST_AXES:
                    raise BlendError(
                        f"tensor {name!r} has {len(t.shape)} axes, an array at most {MOST_AXES}: write it to disk"
                    )
                found[name] = raw.view(_numpy_dtype(t.dtype)).reshape(t.shape)
        return found


def _fresh(nbytes: int) -> np.ndarray:
    """Memory for an output. numpy asks for huge pages, for which a kernel whose memory is in pieces moves others around:
    that took 8.6 s of processor time for a GB, plain pages 0.45 s, huge ones that were at hand 0.18 s."""
    return np.frombuffer(mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)[:nbytes]


def _numpy_dtype(dtype: str) -> np.dtype:
    if dtype == "BF16":
        return BITS[dtype]
    if dtype in FLOATS:
        return np.dtype(f"f{BITS[dtype].itemsize}")
    kind = {"B": "?", "U": "u", "I": "i"}[dtype[0]]
    return np.dtype("?" if kind == "?" else f"{kind}{int(dtype[1:]) // 8}")
