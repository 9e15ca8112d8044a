"""X g: the inner products of many checkpoints with one vector in memory, from one read of them.

    checkpoints -> blocks, each within one tensor -> decode, multiply with that stretch of the vector -> sums in fp64

The vector is as large as one model; the checkpoints are never in memory, whatever their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.gram import WHOLE
from trajsoup.core.tensor_groups import itself
from trajsoup.engine.cells import Groups, cut, find_cells
from trajsoup.engine.kernels import decode
from trajsoup.engine.layout import make_layout
from trajsoup.engine.stretches import float_spans
from trajsoup.engine.workers import Options, Slices, Workers
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.stored import ITEM_BYTES

CHUNK = 16384  # numbers that are decoded at once

Vector = Callable[[str, int, int], NDArray[np.float32]]  # tensor, first and last number -> that stretch


def inner_products(
    checkpoints: Mapping[str, Checkpoint],
    vector: Vector,
    *,
    names: Sequence[str],
    groups: Groups | None = None,
    options: Options | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> dict[str, NDArray[np.float64]]:
    """<x_c, g> by group of tensors, and over all of them under WHOLE, in the order of the checkpoints.

    `vector` is defined on the tensors in `names`; the others count nothing.
    """
    order = list(checkpoints.values())
    layout = make_layout(order[0])
    cells = find_cells(layout, itself)  # a cell is one tensor
    shapes = {name: t.shape for name, t in order[0].tensors.items()}
    wanted = set(names)
    sums: dict[tuple[str, int], NDArray[np.float64]] = {}
    lock = threading.Lock()

    def start() -> Callable[[Slices], None]:
        rows = np.empty((len(order), CHUNK))

        def use(slices: Slices) -> None:
            block, (bits, starts) = slices.block, slices.bits()
            (name,) = cells.groups[cells.at(block.file, block.offset)]
            if name not in wanted:
                return
            offset = layout.files[block.file].header.tensors[name].offset
            first = (block.offset - offset) // ITEM_BYTES[block.dtype]
            total = np.zeros(len(order))
            for begin in range(0, block.items, CHUNK):
                n = min(CHUNK, block.items - begin)
                for m, at in enumerate(starts):
                    decode(bits[m, at + begin : at + begin + n], block.dtype, rows[m, :n])
                total += rows[:, :n] @ vector(name, first + begin, first + begin + n).astype(np.float64)
            with lock:
                sums[name, block.offset] = total

        return use

    workers = Workers(order, options=options or Options())
    workers.run(list(cut(float_spans(layout, order), cells)), start, progress=progress)
    found = {WHOLE: np.zeros(len(order))}
    for name, offset in sorted(sums):  # in one order, whichever thread came first
        for group in (WHOLE, *(() if groups is None else groups(name, shapes[name]))):
            found[group] = found.get(group, 0.0) + sums[name, offset]
    return found
