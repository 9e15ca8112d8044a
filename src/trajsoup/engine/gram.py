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

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from trajsoup.core.gram import WHOLE, Gram, Nonfinite, Products, subset
from trajsoup.engine.cells import Groups, find_cells
from trajsoup.engine.executor import Executor
from trajsoup.engine.gram_ranges import share_stretches
from trajsoup.engine.kernels import accelerated
from trajsoup.engine.layout import make_layout
from trajsoup.engine.stretches import Square, sum_stretches
from trajsoup.engine.workers import Options
from trajsoup.errors import GeometryError
from trajsoup.store.checkpoint import Checkpoint

STRETCH_BYTES = 64 << 20  # of the file: what is summed on its own, a multiple of CHUNK_BYTES


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

    >>> gram({"a": open_checkpoint("a"), "b": open_checkpoint("b")}).whole  # doctest: +SKIP
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
