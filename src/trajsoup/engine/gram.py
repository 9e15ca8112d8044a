"""G = (X - x0)(X - x0)^T: every inner product of M checkpoints from one read of them.

    checkpoints -> blocks -> worker threads: decode, subtract the centre, multiply -> sums in fp64 -> core/gram.py

Subtracting the centre *before* the product is what keeps small distances: between checkpoints of one run the weights
agree in their leading digits, and uncentred products lose what is left of them. Products are taken in fp32 (fp64 for
fp64 tensors) over chunks that lie at fixed places of the file, and added in fp64 in the order of the file. So threads,
blocks and I/O path change no bit of the result; how BLAS multiplies one chunk is its own affair.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.gram import WHOLE, Gram, Nonfinite, Products
from trajsoup.engine.kernels import decode, nonfinite
from trajsoup.engine.layout import Layout, Span, make_layout, spans
from trajsoup.engine.workers import Options, Slices, Workers
from trajsoup.errors import GeometryError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.safetensors import FLOATS, ITEM_BYTES

CHUNK_BYTES = 32 << 10  # of one checkpoint: 16K columns of bf16, whose fp32 sums stay accurate

Groups = Callable[[str, tuple[int, ...]], Sequence[str]]
Square = NDArray[np.float64]


def gram(
    checkpoints: Mapping[str, Checkpoint],
    *,
    centre: str | None = None,
    groups: Groups | None = None,
    options: Options | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Gram:
    """Compute the Gram matrix of displacements from `centre`, a key of `checkpoints`; None: from their mean.

    Signatures must agree already; integer tensors are left out. `groups` maps a tensor's name and shape to the groups
    it belongs to (see `tensor_groups`), each of which gets its own matrix. NaN and Inf do not raise: they are listed in
    the result, and that chunk of that checkpoint counts as equal to the centre. `progress` hears of bytes read.
    """
    if not checkpoints:
        raise GeometryError("no checkpoint to measure: name at least one")
    if centre is not None and centre not in checkpoints:
        raise GeometryError(f"the fork point {centre} is not among the {len(checkpoints)} checkpoints: add it to them")
    keys, order = list(checkpoints), list(checkpoints.values())
    layout = make_layout(order[0])
    cells, pieces = _pieces(layout, groups)
    if not cells:
        raise GeometryError(f"{order[0].path} holds no floating tensor: there is nothing to measure")
    workers = Workers(order, options=options or Options(), grain=CHUNK_BYTES)
    task = _Pass(order, None if centre is None else keys.index(centre), layout, pieces, len(cells))
    found = [span for span in spans(layout, order) if span.dtype in FLOATS]
    with _one_blas_thread():
        workers.run(found, task.start, progress=progress)
    elements = [0] * len(cells)
    for file in pieces:
        for piece in file:
            elements[piece.cell] += piece.items
    return Gram(
        keys=tuple(keys),
        centre=centre,
        groups=_collect(cells, task.sums, elements, fork=task.fork, members=len(keys)),
        nonfinite=tuple(
            Nonfinite(key=keys[m], file=order[m].files[order[m].tensors[name][0]].name, tensor=name)
            for m, name in sorted(task.bad)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of bytes of one output file whose tensors belong to the same groups."""

    start: int
    end: int
    cell: int
    items: int


def _pieces(layout: Layout, groups: Groups | None) -> tuple[list[tuple[str, ...]], list[list[_Piece]]]:
    """The distinct combinations of groups ("cells"), and where in each file their tensors lie."""
    cells: dict[tuple[str, ...], int] = {}
    files: list[list[_Piece]] = []
    for file in layout.files:
        found: list[_Piece] = []
        for name, t in file.header.tensors.items():
            if t.dtype not in FLOATS or t.nbytes == 0:
                continue
            names = () if groups is None else tuple(dict.fromkeys(groups(name, t.shape)))
            cell = cells.setdefault(names, len(cells))
            piece = _Piece(t.offset, t.offset + t.nbytes, cell, t.nbytes // ITEM_BYTES[t.dtype])
            if found and (found[-1].end, found[-1].cell) == (piece.start, cell):
                last = found.pop()
                piece = _Piece(last.start, piece.end, cell, last.items + piece.items)
            found.append(piece)
        files.append(found)
    return list(cells), files


class _Pass:
    """What all workers share: the sums, and the tensors that are not finite."""

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        fork: int | None,
        layout: Layout,
        pieces: Sequence[Sequence[_Piece]],
        cells: int,
    ) -> None:
        self.fork, self.layout, self.pieces = fork, layout, pieces
        self.members = len(checkpoints)
        # The centre has a row of its own: the fork point's, whose displacement is zero anyway, or one more. Without a
        # fork point that is the first checkpoint, not the mean: one that diverged would carry the mean far away from
        # all others, and their distances would drown. The sums move to the mean at the end.
        self.rows = self.members + (fork is None)
        self.centre_row = self.members if fork is None else fork
        self.sums: Square = np.zeros((cells, self.rows, self.rows))
        self.bad: set[tuple[int, str]] = set()
        self._waiting: dict[int, list[tuple[int, NDArray[Any]]]] = {}
        self._next = 0
        self._lock = threading.Lock()

    def start(self) -> Callable[[Slices], None]:
        scratch: dict[str, NDArray[Any]] = {}

        def use(slices: Slices) -> None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._add(slices.number, list(self._multiply(slices, scratch)))

        return use

    def _multiply(self, slices: Slices, scratch: dict[str, NDArray[Any]]) -> Iterator[tuple[int, NDArray[Any]]]:
        block, (bits, starts) = slices.block, slices.bits()
        item = ITEM_BYTES[block.dtype]
        if block.dtype not in scratch:
            number = np.float64 if block.dtype == "F64" else np.float32
            scratch[block.dtype] = np.empty((self.rows, CHUNK_BYTES // item), number)
        for cell, begin, end in _chunks(block, self.pieces[block.file]):
            first, n = (begin - block.offset) // item, (end - begin) // item
            chunk = [bits[m, start + first : start + first + n] for m, start in enumerate(starts)]
            product = self._product(chunk, block.dtype, scratch[block.dtype][:, :n])
            if not np.isfinite(product).all():
                product = self._without_bad(chunk, block, begin, scratch[block.dtype][:, :n])
            if product is not None:
                yield cell, product

    def _product(self, chunk: Sequence[NDArray[Any]], dtype: str, rows: NDArray[Any]) -> NDArray[Any]:
        for m, bits in enumerate(chunk):
            decode(bits, dtype, rows[m])
        if self.fork is None:
            rows[self.members] = rows[0]
        return self._displace_and_multiply(rows)

    def _displace_and_multiply(self, rows: NDArray[Any]) -> NDArray[Any]:
        centre = rows[self.centre_row]
        for m in range(self.members):
            if m != self.centre_row:
                np.subtract(rows[m], centre, out=rows[m])
        return rows @ rows.T

    def _without_bad(
        self, chunk: Sequence[NDArray[Any]], block: Span, begin: int, rows: NDArray[Any]
    ) -> NDArray[Any] | None:
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
        wide = np.zeros(rows.shape)
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

    def _add(self, number: int, products: list[tuple[int, NDArray[Any]]]) -> None:
        """Add in the order of the blocks, whichever thread comes first: fp64 sums depend on their order too."""
        with self._lock:
            self._waiting[number] = products
            while self._next in self._waiting:
                for cell, product in self._waiting.pop(self._next):
                    self.sums[cell] += product
                self._next += 1


def _chunks(block: Span, pieces: Sequence[_Piece]) -> Iterator[tuple[int, int, int]]:
    """Cut a block at piece boundaries and at multiples of CHUNK_BYTES of the file: (cell, begin, end) in bytes."""
    end = block.offset + block.items * ITEM_BYTES[block.dtype]
    for piece in pieces[bisect.bisect_right(pieces, block.offset, key=lambda piece: piece.start) - 1 :]:
        if piece.start >= end:
            return
        position, stop = max(block.offset, piece.start), min(end, piece.end)
        while position < stop:
            cut = min(position - position % CHUNK_BYTES + CHUNK_BYTES, stop)
            yield piece.cell, position, cut
            position = cut


def _collect(
    cells: Sequence[tuple[str, ...]], sums: Square, elements: Sequence[int], *, fork: int | None, members: int
) -> dict[str, Products]:
    """Sum the cells of each group, and part the centre's own row from the displacements."""
    names = dict.fromkeys([WHOLE, *(name for cell in cells for name in cell)])
    return {
        name: _products(sums[chosen].sum(axis=0), sum(elements[c] for c in chosen), fork=fork, members=members)
        for name in names
        if (chosen := [c for c, cell in enumerate(cells) if name == WHOLE or name in cell])
    }


def _products(total: Square, elements: int, *, fork: int | None, members: int) -> Products:
    row = members if fork is None else fork
    inner, along, square = total[:members, :members].copy(), total[row, :members].copy(), float(total[row, row])
    if fork is not None:
        inner[fork, :] = inner[:, fork] = along[fork] = 0
        return Products(inner=inner, along_centre=along, centre_square=square, elements=elements)
    mean = inner.mean(axis=0)  # <d_i, d_mean>
    shift = float(mean.mean())  # |d_mean|^2
    drift = float(along.mean())  # <x0, d_mean>
    return Products(
        inner=inner - mean[:, None] - mean[None, :] + shift,
        along_centre=along - drift + mean - shift,
        centre_square=square + 2 * drift + shift,
        elements=elements,
    )


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
