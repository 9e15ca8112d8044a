"""W X: many weighted sums of checkpoints from one read of them.

    ingredients, rows -> blocks -> worker threads: read M slices, run the kernels, hand each row's block to its sink

Peak memory is the workers' buffers, which have a fixed budget: neither the size of the model nor the number of
ingredients adds to it. The result does not depend on threads, blocks, I/O path or the order of ingredients.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trajsoup.core.soup import Row
from trajsoup.engine.kernels import BITS, kernel, nonfinite
from trajsoup.engine.layout import Layout, Span, blocks, spans
from trajsoup.engine.program import Program, compile_rows
from trajsoup.errors import BlendError, CheckpointError, MismatchError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.digest import OrderedDigest
from trajsoup.store.safetensors import FLOATS, ITEM_BYTES
from trajsoup.store.source import DIRECT_READ_BYTES, PAGE, Source, aligned_buffer, is_warm

BUFFER_BYTES = 96 << 20  # of all workers together
WARM_BLOCK_BYTES = 512 << 10
DIRECT_WORKERS = 8  # requests in flight that keep a disk busy


class Sink(Protocol):
    """Takes the blocks of one output. Called from several threads, each block once."""

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Take bytes that belong at `offset` of output file number `file`."""

    def cancel(self) -> None:
        """The pass has failed: let every thread go that waits in `write`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a pass runs. None of it changes a bit of the result."""

    workers: int | None = None  # None: one per core, or more where the disk must be kept busy
    direct: bool | None = None  # read past the page cache; None: if the files are not cached
    accelerate: bool | None = None  # use numba; None: if it is installed
    block_bytes: int | None = None
    buffer_bytes: int = BUFFER_BYTES


def blend(
    checkpoints: Mapping[str, Checkpoint],
    rows: Sequence[Row],
    sinks: Sequence[Sink],
    *,
    layout: Layout,
    exact_from: str | None = None,
    digest: bool = False,
    parts: Sequence[Span] | None = None,
    options: Options | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Mapping[str, tuple[str, ...]]:
    """Compute every row and send its blocks to the sink of the same position.

    `checkpoints` maps the keys of the rows to opened checkpoints, whose signatures must agree already. Integer and
    boolean tensors must be equal in all of them, or `exact_from` names the one to copy. With `digest`, the sha256 of
    every ingredient's files comes back by key; without it an empty mapping does. `parts` limits the pass to some spans
    of `layout` (whose inputs follow the sorted keys). `progress` hears of bytes read.
    """
    options = options or Options()
    keys = sorted({key for row in rows for key in row.weights} | ({exact_from} if exact_from else set()))
    order = [checkpoints[key] for key in keys]
    work = _Pass(keys, order, rows, sinks, layout, exact_from, options, progress)
    return work.run(digest=digest, parts=parts)


class _Pass:
    """One read of the ingredients: what all workers share."""

    def __init__(
        self,
        keys: Sequence[str],
        checkpoints: Sequence[Checkpoint],
        rows: Sequence[Row],
        sinks: Sequence[Sink],
        layout: Layout,
        exact_from: str | None,
        options: Options,
        progress: Callable[[int], None],
    ) -> None:
        self.keys, self.checkpoints, self.rows, self.sinks, self.layout = keys, checkpoints, rows, sinks, layout
        self.exact_from = None if exact_from is None else keys.index(exact_from)
        self.progress = progress
        self.accelerate = options.accelerate
        self.programs = _programs(keys, rows)
        paths = [path for checkpoint in checkpoints for path in checkpoint.files]
        self.direct = not is_warm(paths) if options.direct is None else options.direct
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = options.workers or (max(DIRECT_WORKERS, cores) if self.direct else cores)
        share = options.buffer_bytes // self.workers // (len(keys) + len(rows))
        largest = options.block_bytes or (DIRECT_READ_BYTES if self.direct else WARM_BLOCK_BYTES)
        self.block_bytes = max(min(largest, share) // PAGE * PAGE, PAGE)
        self.digests: list[list[OrderedDigest]] = []
        self.sources: list[list[Source]] = []
        self.error: BaseException | None = None
        self.lock = threading.Lock()

    def run(self, *, digest: bool, parts: Sequence[Span] | None) -> Mapping[str, tuple[str, ...]]:
        found = spans(self.layout, self.checkpoints) if parts is None else parts
        in_order = digest and _in_file_order(found, self.checkpoints)
        with contextlib.ExitStack() as stack:
            for checkpoint in self.checkpoints:
                opened = [stack.enter_context(Source(path, direct=self.direct)) for path in checkpoint.files]
                self.sources.append(opened)
            if in_order:
                self.digests = [[OrderedDigest(start=_lead(path)) for path in c.files] for c in self.checkpoints]
            self._work(blocks(found, block_bytes=self.block_bytes))
        if in_order:
            return {key: tuple(d.hexdigest() for d in ds) for key, ds in zip(self.keys, self.digests, strict=True)}
        return {}

    def _work(self, queue: Iterator[Span]) -> None:
        threads = [threading.Thread(target=self._worker, args=(queue,), daemon=True) for _ in range(self.workers)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:  # Ctrl-C: let the workers finish their block, then go
            self._stop(error)
            for thread in threads:
                thread.join()
            raise
        if self.error is not None:
            raise self.error

    def _stop(self, error: BaseException) -> None:
        with self.lock:
            self.error = self.error or error
        for digests in self.digests:
            for digest in digests:
                digest.cancel()
        for sink in self.sinks:
            sink.cancel()

    def _worker(self, queue: Iterator[Span]) -> None:
        try:
            stride = self.block_bytes + 2 * PAGE
            buffer = aligned_buffer(stride * len(self.keys))
            out = np.empty((len(self.rows), self.block_bytes), np.uint8)
            while True:
                with self.lock:
                    block = None if self.error is not None else next(queue, None)
                if block is None:
                    return
                shifts = self._read(block, buffer, stride)
                if block.dtype in FLOATS:
                    self._blend(block, buffer, stride, shifts, out)
                else:
                    self._copy(block, buffer, stride, shifts)
                self.progress(block.items * ITEM_BYTES[block.dtype] * len(self.keys))
        except BaseException as error:  # noqa: BLE001 -- raised again in the caller's thread
            self._stop(error)

    def _read(self, block: Span, buffer: memoryview, stride: int) -> list[int]:
        item = ITEM_BYTES[block.dtype]
        nbytes = block.items * item
        shifts: list[int] = []
        for m, (file, offset) in enumerate(block.inputs):
            view = buffer[m * stride : (m + 1) * stride]
            shift = self.sources[m][file].read(view, offset=offset, nbytes=nbytes, item_bytes=item)
            if self.digests:
                self.digests[m][file].update(offset, view[shift : shift + nbytes])
            shifts.append(shift)
        return shifts

    def _blend(
        self, block: Span, buffer: memoryview, stride: int, shifts: list[int], out: np.ndarray[Any, Any]
    ) -> None:
        item = ITEM_BYTES[block.dtype]
        bits = np.frombuffer(buffer, BITS[block.dtype]).reshape(len(self.keys), stride // item)
        results = out.view(BITS[block.out_dtype])
        starts = np.array(shifts, np.int64) // item
        finite = True
        for plain, program in self.programs:
            run = kernel(block.dtype, block.out_dtype, plain=plain, accelerate=self.accelerate)
            finite &= run(bits, starts, block.items, program, results)
        if not finite:
            raise self._culprit(block, bits, starts, results)
        nbytes = block.items * ITEM_BYTES[block.out_dtype]
        for row, sink in enumerate(self.sinks):
            sink.write(block.file, block.offset, memoryview(out[row])[:nbytes])

    def _copy(self, block: Span, buffer: memoryview, stride: int, shifts: list[int]) -> None:
        nbytes = block.items * ITEM_BYTES[block.dtype]
        views = [buffer[m * stride + s : m * stride + s + nbytes] for m, s in enumerate(shifts)]
        chosen = views[self.exact_from or 0]
        if self.exact_from is None:
            for m, view in enumerate(views):
                if view != chosen:
                    differ = np.frombuffer(view, np.uint8) != np.frombuffer(chosen, np.uint8)
                    name = self._tensor_at(block, int(differ.argmax()) // ITEM_BYTES[block.dtype])
                    raise MismatchError(
                        f"the {block.dtype} tensor {name!r} differs between {self.checkpoints[0].path} and "
                        f"{self.checkpoints[m].path}, and integers are not averaged: pass --exact-from with the "
                        "checkpoint to copy it from"
                    )
        for sink in self.sinks:
            sink.write(block.file, block.offset, chosen)

    def _culprit(
        self, block: Span, bits: np.ndarray[Any, Any], starts: np.ndarray[Any, Any], results: np.ndarray[Any, Any]
    ) -> Exception:
        for m, start in enumerate(starts):
            bad = nonfinite(bits[m, start : start + block.items], block.dtype)
            if bad.any():
                name = self._tensor_at(block, int(bad.argmax()))
                path = self.checkpoints[m].files[block.inputs[m][0]]
                return CheckpointError(
                    f"{path}: tensor {name!r} holds NaN or Inf: this checkpoint diverged or is damaged; leave it out"
                )
        overflown = nonfinite(results[:, : block.items], block.out_dtype).any(axis=0)
        return BlendError(
            f"tensor {self._tensor_at(block, int(overflown.argmax()))!r} overflows {block.out_dtype} although every "
            "ingredient is finite: use smaller weights, or --dtype bf16 or fp32"
        )

    def _tensor_at(self, block: Span, item: int) -> str:
        position = block.offset + item * ITEM_BYTES[block.out_dtype]
        tensors = self.layout.files[block.file].header.tensors
        return next(name for name, t in tensors.items() if t.offset <= position < t.offset + t.nbytes)


def _programs(keys: Sequence[str], rows: Sequence[Row]) -> list[tuple[bool, Program]]:
    """One program for the plain means and one for the weighted rows, each knowing its rows by their global numbers."""
    place = {key: i for i, key in enumerate(keys)}
    found: list[tuple[bool, Program]] = []
    for plain in (True, False):
        chosen = [r for r, row in enumerate(rows) if row.uniform is plain]
        if not chosen:
            continue
        members = {
            r: sorted((place[key], 1.0 if plain else weight) for key, weight in rows[r].weights.items()) for r in chosen
        }
        divisors = np.array([float(len(row.weights)) if plain else 1.0 for row in rows])
        found.append((plain, compile_rows(members, divisors=divisors)))
    return found


def _in_file_order(found: Sequence[Span], checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether the pass meets the bytes of every ingredient's file in order, so that they can be hashed on the way."""
    position = [[header.data_offset for header in checkpoint.headers] for checkpoint in checkpoints]
    for span in found:
        for m, (file, offset) in enumerate(span.inputs):
            if position[m][file] != offset:
                return False
            position[m][file] += span.items * ITEM_BYTES[span.dtype]
    return True


def _lead(path: Path) -> bytes:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        file.seek(0)
        return file.read(8 + length)
