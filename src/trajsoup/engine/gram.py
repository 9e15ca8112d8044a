"""G = (X - x0)(X - x0)^T: every inner product of M checkpoints from one read of them.

    checkpoints -> blocks -> worker threads: decode, subtract the centre, multiply -> sums in fp64 -> core/gram.py

Subtracting the centre *before* the product is what keeps small distances: between checkpoints of one run the weights
agree in their leading digits, and uncentred products lose what is left of them. Products are taken in fp32 (fp64 for
fp64 tensors) over chunks that lie at fixed places of the file, and added in fp64 in the order of the file: first within
stretches at fixed places too, then stretch by stretch. So threads, blocks, I/O path and the machines that share the
stretches change no bit of the result. numba, where it is installed, sums a chunk in another order than BLAS:
the two differ by rounding, far below 1e-6 of a distance.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.gram import WHOLE, Gram, Nonfinite, Products, subset
from trajsoup.engine.cells import Cells, Groups, chunks, find_cells
from trajsoup.engine.executor import Executor
from trajsoup.engine.kernels import accelerated, decode, nonfinite
from trajsoup.engine.layout import Layout, Span, make_layout, spans
from trajsoup.engine.workers import Options, Slices, Workers
from trajsoup.errors import GeometryError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.stored import FLOATS, ITEM_BYTES

STRETCH_BYTES = 64 << 20  # of the file: what is summed on its own, a multiple of CHUNK_BYTES
CHUNK_BYTES = 32 << 10  # of one checkpoint: 16K columns of bf16, whose fp32 sums stay accurate

Square = NDArray[np.float64]
Stretch = tuple[int, int]  # file, number in the file
Sums = dict[Stretch, dict[int, Square]]  # by stretch and cell
Bad = set[tuple[int, str]]  # member, tensor
Multiply = Callable[[str, NDArray[Any], NDArray[np.int64], int], NDArray[Any]]


def gram(
    checkpoints: Mapping[str, Checkpoint],
    *,
    centre: str | None = None,
    groups: Groups | None = None,
    known: Gram | None = None,
    options: Options | None = None,
    executor: Executor | None = None,
    stretch_bytes: int = STRETCH_BYTES,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Gram:
    """Compute the Gram matrix of displacements from `centre`, a key of `checkpoints`; None: from their mean.

    Signatures must agree already; integer tensors are left out. `groups` maps a tensor's name and shape to the groups
    it belongs to (see `tensor_groups`), each of which gets its own matrix. NaN and Inf do not raise: they are listed in
    the result, and that chunk of that checkpoint counts as equal to the centre. `progress` hears of bytes read.

    `known` is an earlier result about the same centre and groups. Without a new checkpoint nothing is read; with one,
    its inner products with all others still need one read of them, but those among the known are not taken again.

    With an `executor`, its machines share the read; they must all have numba, or none. `stretch_bytes`, a multiple of
    CHUNK_BYTES, is the one choice here that moves last bits.
    """
    if not checkpoints:
        raise GeometryError("no checkpoint to measure: name at least one")
    if centre is not None and centre not in checkpoints:
        raise GeometryError(f"the fork point {centre} is not among the {len(checkpoints)} checkpoints: add it to them")
    keys, order = list(checkpoints), list(checkpoints.values())
    layout = make_layout(order[0])
    cells = find_cells(layout, groups)
    if not cells.groups:
        raise GeometryError(f"{order[0].path} holds no floating tensor: there is nothing to measure")
    members = {
        name: [c for c, cell in enumerate(cells.groups) if name in (WHOLE, *cell)]
        for name in dict.fromkeys([WHOLE, *(name for cell in cells.groups for name in cell)])
    }
    if known is not None:
        _require_same_terms(known, centre=centre, groups=members)
        known = subset(known, [key for key in keys if key in known.keys])
        if len(known.keys) == len(keys):
            return known
    new = None if known is None else [m for m, key in enumerate(keys) if key not in known.keys]
    options = options or Options()
    fast = accelerated() if options.accelerate is None else options.accelerate
    fork = None if centre is None else keys.index(centre)
    if executor is None:
        sums, bad = sum_stretches(
            order,
            fork=fork,
            layout=layout,
            cells=cells,
            new=new,
            fast=fast,
            options=options,
            stretch_bytes=stretch_bytes,
            progress=progress,
        )
    else:
        from trajsoup.engine.gram_ranges import share_stretches

        sums, bad = share_stretches(
            order,
            fork=fork,
            layout=layout,
            cells=cells,
            new=new,
            fast=fast,
            options=options,
            executor=executor,
            stretch_bytes=stretch_bytes,
            progress=progress,
        )
    rows = len(keys) + (fork is None)
    by_cell: Square = np.zeros((len(cells.groups), rows if new is None else len(new), rows))
    for stretch in sorted(sums):
        for cell, total in sums[stretch].items():
            by_cell[cell] += total
    totals = {name: by_cell[chosen].sum(axis=0) for name, chosen in members.items()}
    if known is None:
        results = {
            name: _products(totals[name], sum(map(cells.elements, chosen)), fork=fork, members=len(keys))
            for name, chosen in members.items()
        }
    else:
        assert fork is not None
        assert new is not None
        places = [keys.index(key) for key in known.keys]
        results = {
            name: _extended(known.group(name), totals[name], fork=fork, new=new, places=places) for name in members
        }
    wrong = [
        Nonfinite(key=keys[m], file=order[m].files[order[m].tensors[name].boxes[0].file].name, tensor=name)
        for m, name in sorted(bad)
    ]
    return Gram(
        keys=tuple(keys),
        centre=centre,
        groups=results,
        nonfinite=tuple(dict.fromkeys([*(() if known is None else known.nonfinite), *wrong])),
    )


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


def _require_same_terms(known: Gram, *, centre: str | None, groups: Collection[str]) -> None:
    if centre is None or known.centre != centre:
        raise GeometryError(
            f"the known Gram matrix is centred at {known.centre or 'a mean'}, this one at {centre or 'a mean'}: only "
            "matrices about one fork point can be extended; compute it anew"
        )
    if set(known.groups) != set(groups):
        raise GeometryError(
            f"the known Gram matrix has the tensor groups {', '.join(known.groups)}, this one {', '.join(groups)}: "
            "compute it anew"
        )


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


def _products(total: Square, elements: int, *, fork: int | None, members: int) -> Products:
    """Part the centre's own row from the displacements; without a fork point, move to their mean."""
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


def _extended(known: Products, lines: Square, *, fork: int, new: Sequence[int], places: Sequence[int]) -> Products:
    """Put new lines of products beside those that are known; `places` are the known rows' positions in the result."""
    members = lines.shape[1]
    inner, along = np.zeros((members, members)), np.zeros(members)
    inner[np.ix_(places, places)], along[places] = known.inner, known.along_centre
    along[new] = lines[:, fork]
    lines = lines.copy()
    lines[:, fork] = 0
    lines[:, new] = (lines[:, new] + lines[:, new].T) / 2
    inner[new, :] = lines
    inner[:, new] = lines.T
    return Products(inner=inner, along_centre=along, centre_square=known.centre_square, elements=known.elements)


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
