"""W X: many weighted sums of checkpoints from one read of them.

    ingredients, rows -> blocks -> worker threads: read M slices, run the kernels, hand each row's block to its sink

Peak memory is the workers' buffers, which have a fixed budget: neither the size of the model nor the number of
ingredients adds to it. The result does not depend on threads, blocks, I/O path or the order of ingredients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from trajsoup.core.soup import Row
from trajsoup.engine.cells import Cells, cut, find_cells
from trajsoup.engine.kernels import BITS, kernel, nonfinite
from trajsoup.engine.layout import Layout, Span, spans
from trajsoup.engine.program import Program, compile_rows
from trajsoup.engine.workers import Options, Slices, Workers
from trajsoup.errors import BlendError, MismatchError, NonfiniteError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.digest import Algorithm, OrderedDigest
from trajsoup.store.remote import Place
from trajsoup.store.source import aligned_buffer, read_range, reading
from trajsoup.store.stored import FLOATS, ITEM_BYTES


class Sink(Protocol):
    """Takes the blocks of one output. Called from several threads, each block once."""

    waits: bool  # does `write` wait for a disk? Then more threads keep it busy

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Take bytes that belong at `offset` of output file number `file`."""

    def cancel(self) -> None:
        """The pass has failed: let every thread go that waits in `write`."""


def blend(
    checkpoints: Mapping[str, Checkpoint],
    rows: Sequence[Row],
    sinks: Sequence[Sink],
    *,
    layout: Layout,
    exact_from: str | None = None,
    digest: Algorithm | None = None,
    known: Collection[str] = (),
    parts: Sequence[Span] | None = None,
    options: Options | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Mapping[str, tuple[str, ...]]:
    """Compute every row and send its blocks to the sink of the same position.

    `checkpoints` maps the keys of the rows to opened checkpoints, whose signatures must agree already. Integer and
    boolean tensors must be equal in all of them, or `exact_from` names the one to copy. With `digest`, that of every
    ingredient's files comes back by key, but for keys whose digests are `known`, where the pass meets their bytes in
    order; else an empty mapping does. `parts` limits the pass to some spans of `layout` (whose inputs follow the sorted
    keys). `progress` hears of bytes read.

    >>> blend(plan.checkpoints, [plan.row], [MemorySink(plan.layout)], layout=plan.layout)  # doctest: +SKIP
    """
    options = options or Options()
    keys = sorted({key for row in rows for key in row.weights} | ({exact_from} if exact_from else set()))
    if absent := [key for key in keys if key not in checkpoints]:
        raise BlendError(f"a row names {absent[0]}, which is not among the {len(checkpoints)} checkpoints: add it")
    order = [checkpoints[key] for key in keys]
    work = _Pass(keys, order, rows, sinks, layout, exact_from, options, progress)
    return work.run(digest=digest, known=known, parts=parts)


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
        self.cells, self.programs = _by_cell(layout, keys, rows)
        self.workers = Workers(checkpoints, options=options, outputs=len(rows), waits=any(sink.waits for sink in sinks))

    def run(
        self, *, digest: Algorithm | None, known: Collection[str], parts: Sequence[Span] | None
    ) -> Mapping[str, tuple[str, ...]]:
        found = spans(self.layout, self.checkpoints) if parts is None else parts
        if len(self.programs) > 1:
            found = list(cut(found, self.cells))
        digests: list[list[OrderedDigest]] = []
        if digest is not None and _in_file_order(found, self.checkpoints):
            digests = [
                []
                if key in known
                else [
                    OrderedDigest(digest, start=_lead(path, end))
                    for path, end in zip(c.files, _first_bytes(c), strict=True)
                ]
                for key, c in zip(self.keys, self.checkpoints, strict=True)
            ]
        self.workers.run(found, self._start, digests=digests, cancel=self._cancel, progress=self.progress)
        if not digests:
            return {}
        return {key: tuple(d.hexdigest() for d in ds) for key, ds in zip(self.keys, digests, strict=True) if ds}

    def _cancel(self) -> None:
        for sink in self.sinks:
            sink.cancel()

    def _start(self) -> Callable[[Slices], None]:
        size = (len(self.rows), self.workers.block_bytes)
        out = np.frombuffer(aligned_buffer(size[0] * size[1]), np.uint8).reshape(size)

        def use(slices: Slices) -> None:
            if slices.block.dtype in FLOATS:
                self._blend(slices, out)
            else:
                self._copy(slices)

        return use

    def _blend(self, slices: Slices, out: np.ndarray[Any, Any]) -> None:
        block = slices.block
        bits, starts = slices.bits()
        results = out.view(BITS[block.out_dtype])
        finite = True
        for plain, program in self.programs[self.cells.at(block.file, block.offset)]:
            run = kernel(block.dtype, block.out_dtype, plain=plain, accelerate=self.accelerate)
            finite &= run(bits, starts, block.items, program, results)
        if not finite:
            raise self._culprit(block, bits, starts, results)
        nbytes = block.items * ITEM_BYTES[block.out_dtype]
        for row, sink in enumerate(self.sinks):
            sink.write(block.file, block.offset, memoryview(out[row])[:nbytes])

    def _copy(self, slices: Slices) -> None:
        block, views = slices.block, slices.views()
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
                path = self.checkpoints[m].file_of(block.inputs[m][0])
                return NonfiniteError(
                    f"{path}: tensor {name!r} holds NaN or Inf: this checkpoint diverged or is damaged; leave it out",
                    key=self.keys[m],
                )
        for plain, program in self.programs[
            self.cells.at(block.file, block.offset)
        ]:  # the compiled kernels notice an overflow, but leave any bits for it
            run = kernel(block.dtype, block.out_dtype, plain=plain, accelerate=False)
            run(bits, starts, block.items, program, results)
        overflown = nonfinite(results[:, : block.items], block.out_dtype).any(axis=0)
        return BlendError(
            f"tensor {self._tensor_at(block, int(overflown.argmax()))!r} overflows {block.out_dtype} although every "
            "ingredient is finite: use smaller weights, or --dtype bf16 or fp32"
        )

    def _tensor_at(self, block: Span, item: int) -> str:
        position = block.offset + item * ITEM_BYTES[block.out_dtype]
        tensors = self.layout.files[block.file].header.tensors
        return next(name for name, t in tensors.items() if t.offset <= position < t.offset + t.nbytes)


def _by_cell(
    layout: Layout, keys: Sequence[str], rows: Sequence[Row]
) -> tuple[Cells, list[list[tuple[bool, Program]]]]:
    """Which row applies to which tensor: the tensors whose weights agree in every row are a cell with its own programs."""
    if not any(row.groups for row in rows):
        return find_cells(layout, None), [_programs(keys, rows)]
    combinations: dict[str, list[str | None]] = {}

    def name_of(tensor: str, shape: tuple[int, ...]) -> tuple[str]:
        groups = [row.group_of(tensor, shape) for row in rows]
        combinations[repr(groups)] = groups
        return (repr(groups),)

    cells = find_cells(layout, name_of)
    return cells, [
        _programs(keys, [row.of_group(group) for row, group in zip(rows, combinations[name], strict=True)])
        for (name,) in cells.groups
    ]


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
        divisors = np.array([float(row.mean_of or len(row.weights)) if plain else 1.0 for row in rows])
        found.append((plain, compile_rows(members, divisors=divisors)))
    return found


def _in_file_order(found: Sequence[Span], checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether the pass meets the bytes of every ingredient's file in order, and all of them, so that they can be hashed."""
    if any(checkpoint.encoded or checkpoint.gathered for checkpoint in checkpoints):
        return False
    position = [_first_bytes(checkpoint) for checkpoint in checkpoints]
    for span in found:
        for m, (file, offset) in enumerate(span.inputs):
            if position[m][file] != offset:
                return False
            position[m][file] += span.items * ITEM_BYTES[span.dtype]
    return position == [list(checkpoint.sizes) for checkpoint in checkpoints]


def _first_bytes(checkpoint: Checkpoint) -> list[int]:
    """Where in each file the weights begin."""
    first = checkpoint.signature.first_bytes
    return [first.get(file, size) for file, size in enumerate(checkpoint.sizes)]


def _lead(path: Place, end: int) -> bytes:
    with reading(path):
        return read_range(path, 0, end)


__all__ = ["Options", "Sink", "blend"]
