"""Read the same slices of several checkpoints on several threads: what blend and gram share.

    spans -> blocks -> worker threads: read M slices into a reused buffer, hand them to the pass

Peak memory is the workers' buffers, which have a fixed budget, and the encoded boxes that are in use. A pass that fails
or is interrupted stops every worker after its block, and the first error is the one raised.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.engine.kernels import BITS
from trajsoup.engine.layout import Span, blocks
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.digest import OrderedDigest
from trajsoup.store.open_files import OpenFiles
from trajsoup.store.remote import RemotePath
from trajsoup.store.resident import ResidentFiles
from trajsoup.store.source import (
    DIRECT_READ_BYTES,
    PAGE,
    DecodedSource,
    GatheredSource,
    MadeSource,
    Reader,
    aligned_buffer,
    is_warm,
    open_source,
)
from trajsoup.store.stored import ITEM_BYTES

BUFFER_BYTES = 96 << 20  # of all workers together
WARM_BLOCK_BYTES = 512 << 10
SMALL_BLOCK_BYTES = 128 << 10  # below it the calls cost more than the cache saves
CACHE_BYTES = 6 << 20  # of a worker, where many outputs stay in memory: its slices stay near, kernels cut them smaller
DIRECT_WORKERS = 4  # requests in flight that keep a disk busy; more only take the cores from each other
REMOTE_WORKERS = 4  # each has a request in flight for every checkpoint
REMOTE_BLOCK_BYTES = 8 << 20  # a store wants long ranges
REMOTE_BUFFER_BYTES = 256 << 20
REMOTE_REQUESTS = 64  # at most, all workers together
SOURCES_SHARE = 0.5  # of the files that the process may have open


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a pass runs. None of it changes a bit of the result, but for `accelerate` the last bits of a Gram matrix."""

    workers: int | None = None  # None: one per core, or more where the disk must be kept busy
    direct: bool | None = None  # read past the page cache; None: if the files are not cached
    accelerate: bool | None = None  # use numba; None: if it is installed
    block_bytes: int | None = None
    buffer_bytes: int | None = None  # None: a fixed budget, larger where ranges travel through a network
    resident: ResidentFiles | None = None  # what memory holds of the files is not read from disk


@dataclass(frozen=True, slots=True)
class Slices:
    """One block of every checkpoint, as a worker has just read it. Valid until the worker reads the next."""

    number: int  # of the block, in the order of the pass
    block: Span
    buffer: memoryview
    stride: int  # bytes of the buffer per checkpoint
    shifts: tuple[int, ...]  # per checkpoint: where in its part of the buffer the bytes start

    @property
    def nbytes(self) -> int:
        """Bytes of the block in one checkpoint."""
        return self.block.items * ITEM_BYTES[self.block.dtype]

    def bits(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """All checkpoints as rows of numbers, and the column at which each row starts."""
        item = ITEM_BYTES[self.block.dtype]
        rows = np.frombuffer(self.buffer, BITS[self.block.dtype]).reshape(len(self.shifts), self.stride // item)
        return rows, np.array(self.shifts, np.int64) // item

    def views(self) -> list[memoryview]:
        """The bytes of each checkpoint."""
        begins = [m * self.stride + shift for m, shift in enumerate(self.shifts)]
        return [self.buffer[begin : begin + self.nbytes] for begin in begins]


def is_remote(checkpoints: Iterable[Checkpoint]) -> bool:
    """Whether ranges travel through a network."""
    return any(isinstance(path, RemotePath) for checkpoint in checkpoints for path in checkpoint.files)


def default_buffer_bytes(checkpoints: Iterable[Checkpoint]) -> int:
    """Of all workers together."""
    return REMOTE_BUFFER_BYTES if is_remote(checkpoints) else BUFFER_BYTES


class Workers:
    """The threads of one pass over `checkpoints`."""

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        *,
        options: Options,
        outputs: int = 0,
        waits: bool = False,
        grain: int = PAGE,
    ) -> None:
        """Choose I/O path, threads and block size.

        `outputs` counts the blocks a worker holds beside its inputs, `waits` says that it waits for a disk when it hands
        them over; blocks are whole multiples of `grain` bytes.
        """
        self.checkpoints, self.grain = checkpoints, grain
        paths = [path for checkpoint in checkpoints for path in checkpoint.files]
        self._resident = options.resident
        absent = [path for path in paths if self._resident is None or self._resident.get(path) is None]
        self.direct = not is_warm(absent) if options.direct is None else options.direct
        self.remote = is_remote(checkpoints)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.count = options.workers or (max(DIRECT_WORKERS, cores) if self.direct or waits else cores)
        if self.remote:
            self.count = options.workers or max(REMOTE_WORKERS, cores)
        budget = options.buffer_bytes or default_buffer_bytes(checkpoints)
        share = budget // self.count // (len(checkpoints) + outputs)
        usual = REMOTE_BLOCK_BYTES if self.remote else DIRECT_READ_BYTES if self.direct else WARM_BLOCK_BYTES
        if outputs > 1 and not (waits or self.direct or self.remote):
            usual = min(usual, max(CACHE_BYTES // (len(checkpoints) + outputs), SMALL_BLOCK_BYTES))
        wanted = min(options.block_bytes or usual, share)
        self.block_bytes = max(wanted - wanted % grain, grain)
        self._digests: Sequence[Sequence[OrderedDigest]] = ()
        self._sources: list[list[Reader]] = []
        self._requests: ThreadPoolExecutor | None = None
        self._cancel: Callable[[], None] = lambda: None
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def run(
        self,
        found: Sequence[Span],
        start: Callable[[], Callable[[Slices], None]],
        *,
        digests: Sequence[Sequence[OrderedDigest]] = (),
        cancel: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        """Read every block once. Each thread calls `start` and gives the function it returns one block after another.

        `digests`, by checkpoint and file, see every byte read (of a checkpoint that has none, nothing is asked); `cancel`
        frees threads that wait elsewhere.
        """
        self._digests, self._cancel = digests, cancel
        queue = enumerate(blocks(found, block_bytes=self.block_bytes, grain=self.grain))
        with contextlib.ExitStack() as stack:
            files = OpenFiles(share=SOURCES_SHARE)
            stack.callback(files.close)
            for m, checkpoint in enumerate(self.checkpoints):
                opened = [
                    open_source(path, direct=self.direct, resident=self._resident, files=files)
                    for path in checkpoint.files
                ]
                self._sources.append([*opened, *_decoded(checkpoint, opened, found, m)])
            if self.remote:
                together = min(self.count * len(self.checkpoints), REMOTE_REQUESTS)
                self._requests = stack.enter_context(ThreadPoolExecutor(together))
            work = (queue, start, progress)
            threads = [threading.Thread(target=self._worker, args=work, daemon=True) for _ in range(self.count)]
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            except BaseException as error:  # Ctrl-C: let the workers finish their block, then go
                self._stop(error)
                for thread in threads:
                    with contextlib.suppress(RuntimeError):  # not started yet: it will find the error and read nothing
                        thread.join()
                raise
        if self._error is not None:
            raise self._error
        for checkpoint in self.checkpoints:
            checkpoint.require_unchanged()

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
        for digests in self._digests:
            for digest in digests:
                digest.cancel()
        self._cancel()

    def _worker(
        self,
        queue: Iterator[tuple[int, Span]],
        start: Callable[[], Callable[[Slices], None]],
        progress: Callable[[int], None],
    ) -> None:
        try:
            use = start()
            stride = self.block_bytes + 2 * PAGE
            buffer = aligned_buffer(stride * len(self.checkpoints))
            while True:
                with self._lock:
                    taken = None if self._error is not None else next(queue, None)
                if taken is None:
                    return
                slices = self._read(*taken, buffer, stride)
                use(slices)
                progress(slices.nbytes * len(self.checkpoints))
        except BaseException as error:  # noqa: BLE001  # the thread that waits in `run` raises it
            self._stop(error)

    def _read(self, number: int, block: Span, buffer: memoryview, stride: int) -> Slices:
        item = ITEM_BYTES[block.dtype]
        nbytes = block.items * item
        views = [buffer[m * stride : (m + 1) * stride] for m in range(len(block.inputs))]

        def read(m: int) -> int:
            source, offset = block.inputs[m]
            return self._sources[m][source].read(views[m], offset=offset, nbytes=nbytes, item_bytes=item)

        members = range(len(views))
        arriving = map(read, members) if self._requests is None else self._requests.map(read, members)
        shifts: list[int] = []
        for m, shift in enumerate(arriving):
            if self._digests and self._digests[m]:
                file, offset = block.inputs[m]
                self._digests[m][file].update(offset, views[m][shift : shift + nbytes])
            shifts.append(shift)
        return Slices(number, block, buffer, stride, tuple(shifts))


def _decoded(checkpoint: Checkpoint, opened: Sequence[Reader], found: Sequence[Span], m: int) -> list[Reader]:
    """The encoded boxes of checkpoint `m`, each of which must know how much of it will be read, and tensors put together or
    computed."""
    wanted: Counter[int] = Counter()
    for span in found if checkpoint.encoded or checkpoint.gathered else ():
        wanted[span.inputs[m][0]] += span.items * ITEM_BYTES[span.dtype]
    decoded = [
        DecodedSource(box, opened[box.file], dtype=dtype, wanted_bytes=wanted[number])
        for (box, dtype), number in checkpoint.encoded.items()
    ]
    gathered = [
        GatheredSource(tensor, opened)
        if (tensor := checkpoint.tensors[name]).made is None
        else MadeSource(tensor, opened, wanted_bytes=wanted[number])
        for name, number in checkpoint.gathered.items()
    ]
    return [*decoded, *gathered]
