"""The Gram pass over stretches of the files: each is read once, and its products are summed on their own.

Stretches lie at fixed places of the file, so it does not matter which thread or machine takes which.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.engine.cells import Cells, chunks
from trajsoup.engine.kernels import decode, nonfinite
from trajsoup.engine.layout import Layout, Span, spans
from trajsoup.engine.workers import Options, Slices, Workers
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.stored import FLOATS, ITEM_BYTES

CHUNK_BYTES = 32 << 10  # of one checkpoint: 16K columns of bf16, whose fp32 sums stay accurate

Square = NDArray[np.float64]
Stretch = tuple[int, int]  # file, number in the file
Sums = dict[Stretch, dict[int, Square]]  # by stretch and cell
Bad = set[tuple[int, str]]  # member, tensor
Multiply = Callable[[str, NDArray[Any], NDArray[np.int64], int], NDArray[Any]]


def sum_stretches(
    checkpoints: Sequence[Checkpoint],
    *,
    fork: int | None,
    layout: Layout,
    cells: Cells,
    new: Sequence[int] | None,
    fast: bool,
    options: Options,
    stretch_bytes: int,
    parts: Sequence[Span] | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> tuple[Sums, Bad]:
    """Read all spans, or `parts` of them, and return the sums of every stretch and the tensors that are not finite."""
    task = _Pass(checkpoints, fork, layout, cells, new, fast, stretch_bytes)
    workers = Workers(checkpoints, options=options, grain=CHUNK_BYTES)
    with _one_blas_thread():
        workers.run(float_spans(layout, checkpoints) if parts is None else parts, task.start, progress=progress)
    return task.sums, task.bad


def float_spans(layout: Layout, checkpoints: Sequence[Checkpoint]) -> list[Span]:
    """What a Gram matrix reads."""
    return [span for span in spans(layout, checkpoints) if span.dtype in FLOATS]


class _Pass:
    """What all workers share: the sums, and the tensors that are not finite."""

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        fork: int | None,
        layout: Layout,
        cells: Cells,
        new: Sequence[int] | None,
        fast: bool,
        stretch_bytes: int,
    ) -> None:
        self.fork, self.layout, self.cells, self.new, self.fast = fork, layout, cells, new, fast
        self.stretch_bytes = stretch_bytes
        self.members = len(checkpoints)
        # The centre has a row of its own: the fork point's, whose displacement is zero anyway, or one more. Without a
        # fork point that is the first checkpoint, not the mean: one that diverged would carry the mean far away from
        # all others, and their distances would drown. The sums move to the mean at the end.
        self.rows = self.members + (fork is None)
        self.centre_row = self.members if fork is None else fork
        self.lines = self.rows if new is None else len(new)
        self.sums: Sums = {}
        self.bad: Bad = set()
        self._waiting: dict[int, list[tuple[Stretch, int, NDArray[Any]]]] = {}
        self._next = 0
        self._lock = threading.Lock()

    def start(self) -> Callable[[Slices], None]:
        multiply = self._plain
        if self.fast:
            from trajsoup.engine.accelerated_gram import multiplier

            multiply = multiplier(self.members, fork=self.fork, new=self.new)

        def use(slices: Slices) -> None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._add(slices.number, list(self._multiply(slices, multiply)))

        return use

    def _multiply(self, slices: Slices, multiply: Multiply) -> Iterator[tuple[Stretch, int, NDArray[Any]]]:
        block, (bits, starts) = slices.block, slices.bits()
        item = ITEM_BYTES[block.dtype]
        if block.dtype == "F64":
            multiply = self._plain
        for cell, begin, end in chunks(block, self.cells.files[block.file], chunk_bytes=CHUNK_BYTES):
            first, n = (begin - block.offset) // item, (end - begin) // item
            product = multiply(block.dtype, bits, starts + first, n)
            if not np.isfinite(product).all():
                chunk = [bits[m, start + first : start + first + n] for m, start in enumerate(starts)]
                product = self._without_bad(chunk, block, begin)
            if product is not None:
                yield (block.file, begin // self.stretch_bytes), cell, product

    def _plain(self, dtype: str, bits: NDArray[Any], starts: NDArray[np.int64], n: int) -> NDArray[Any]:
        rows = np.empty((self.rows, n), np.float64 if dtype == "F64" else np.float32)
        for m, start in enumerate(starts):
            decode(bits[m, start : start + n], dtype, rows[m])
        if self.fork is None:
            rows[self.members] = rows[0]
        return self._displace_and_multiply(rows)

    def _displace_and_multiply(self, rows: NDArray[Any]) -> NDArray[Any]:
        centre = rows[self.centre_row]
        for m in range(self.members):
            if m != self.centre_row:
                np.subtract(rows[m], centre, out=rows[m])
        return rows @ rows.T if self.new is None else rows[self.new] @ rows.T

    def _without_bad(self, chunk: Sequence[NDArray[Any]], block: Span, begin: int) -> NDArray[Any] | None:
        """Put the centre where a checkpoint is not finite; use fp64, for fp32 may have overflowed. None: no centre."""
        good: list[int] = []
        for m, bits in enumerate(chunk):
            wrong = nonfinite(bits, block.dtype)
            if wrong.any():
                self._report(m, block, begin, wrong)
            else:
                good.append(m)
        if not good or (self.fork is not None and self.fork not in good):
            return None
        wide = np.zeros((self.rows, len(chunk[0])))
        for m in good:
            decode(chunk[m], block.dtype, wide[m])
        centre = wide[good].mean(axis=0) if self.fork is None else wide[self.fork]
        for m in set(range(self.members)) - set(good):
            wide[m] = centre
        wide[self.centre_row] = wide[good[0]] if self.fork is None else centre
        return self._displace_and_multiply(wide)

    def _report(self, m: int, block: Span, begin: int, wrong: NDArray[np.bool_]) -> None:
        item = ITEM_BYTES[block.dtype]
        end = begin + len(wrong) * item
        for name, t in self.layout.files[block.file].header.tensors.items():
            low, high = max(t.offset, begin), min(t.offset + t.nbytes, end)
            if low < high and wrong[(low - begin) // item : (high - begin) // item].any():
                with self._lock:
                    self.bad.add((m, name))

    def _add(self, number: int, products: list[tuple[Stretch, int, NDArray[Any]]]) -> None:
        """Add in the order of the blocks, whichever thread comes first: fp64 sums depend on their order too."""
        with self._lock:
            self._waiting[number] = products
            while self._next in self._waiting:
                for stretch, cell, product in self._waiting.pop(self._next):
                    sums = self.sums.setdefault(stretch, {})
                    if cell not in sums:
                        sums[cell] = np.zeros((self.lines, self.rows))
                    sums[cell] += product
                self._next += 1


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Our workers already fill the cores: a BLAS that starts threads of its own only makes them wait for each other."""
    try:
        from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingImports]
    except ImportError:
        yield
        return
    with threadpool_limits(1, user_api="blas"):
        yield
