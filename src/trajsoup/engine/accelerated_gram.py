# pyright: reportCallIssue=false, reportUndefinedVariable=false
# ruff: noqa: F821 -- `decode` of the template is bound by `specialised`
"""Products of displacements compiled by numba: decode, subtract and multiply tiles that stay in the cache.

Half of a symmetric product is enough, and at these shapes (tens of rows, thousands of columns) BLAS does not save the
other half: this is not quite twice as fast. Each tile is summed in fp32, tiles are added in fp64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from trajsoup.engine.accelerated import DECODE, specialised

TILE = 1024  # columns
SIDE = 4  # rows of a register block
_COMPILE: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "boundscheck": False,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},  # sums may be reordered to fill vectors; NaN and Inf still count
}

Multiply = Callable[[str, NDArray[Any], NDArray[np.int64], int], NDArray[np.float64]]


def multiplier(members: int, *, fork: int | None, new: Sequence[int] | None) -> Multiply:
    """Return `multiply(dtype, bits, starts, n)` with buffers of its own, for one thread.

    `bits[m, starts[m] : starts[m] + n]` is checkpoint m. The result has the rows of engine/gram.py: displacements from
    the fork point, whose own row holds the fork point itself; or from the first checkpoint, which has one more row.
    With `new`, only these lines of the result are computed.
    """
    rows = members + (fork is None)
    centre, centre_row = (0, members) if fork is None else (fork, fork)
    side = -(-rows // SIDE)
    wanted = set(range(side)) if new is None else {m // SIDE for m in new}
    pairs = np.array([(i, j) for i in range(side) for j in range(i + 1) if i in wanted or j in wanted], np.int64)
    tile = np.zeros((side * SIDE, TILE), np.float32)
    sums = np.empty((side * SIDE, side * SIDE))

    def multiply(dtype: str, bits: NDArray[Any], starts: NDArray[np.int64], n: int) -> NDArray[np.float64]:
        _kernel(dtype)(bits, starts, n, centre, centre_row, pairs, tile, sums)
        return sums[:rows, :rows].copy() if new is None else sums[new, :rows]

    return multiply


@functools.cache
def _kernel(dtype: str) -> Any:
    return specialised(_products, f"products_{dtype}", compile=_COMPILE, decode=DECODE[dtype])


def _products(bits, starts, n, centre, centre_row, pairs, tile, sums):  # noqa: ANN001, ANN202
    _use_whole_registers()
    sums[:] = 0
    for begin in range(0, n, TILE):
        length = min(TILE, n - begin)
        middle = tile[centre_row, :length]
        source = bits[centre, starts[centre] + begin : starts[centre] + begin + length]
        for k in range(length):
            middle[k] = decode(source[k])
        for m in range(len(starts)):
            if m != centre_row:
                row = tile[m, :length]
                source = bits[m, starts[m] + begin : starts[m] + begin + length]
                for k in range(length):
                    row[k] = decode(source[k]) - middle[k]
        for p in range(len(pairs)):
            _block(tile, SIDE * pairs[p, 0], SIDE * pairs[p, 1], length, sums)
    for i in range(len(sums)):
        for j in range(i):
            sums[j, i] = sums[i, j]


@intrinsic
def _use_whole_registers(context: Any) -> Any:
    """Ask LLVM for 512-bit vectors where the CPU has them; on its own it takes half of each."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite's own `add` knows no such pairs
        return ir.Constant(ir.IntType(8), 0)

    return types.uint8(), generate


@njit(**_COMPILE)
def _block(tile, i, j, length, sums):  # noqa: ANN001, ANN202
    """Sixteen sums at once: eight loads feed sixteen multiplications, so the loads keep up."""
    _use_whole_registers()
    a0, a1, a2, a3 = tile[i, :length], tile[i + 1, :length], tile[i + 2, :length], tile[i + 3, :length]
    b0, b1, b2, b3 = tile[j, :length], tile[j + 1, :length], tile[j + 2, :length], tile[j + 3, :length]
    zero = np.float32(0)
    s00, s01, s02, s03 = zero, zero, zero, zero
    s10, s11, s12, s13 = zero, zero, zero, zero
    s20, s21, s22, s23 = zero, zero, zero, zero
    s30, s31, s32, s33 = zero, zero, zero, zero
    for k in range(length):
        x0, x1, x2, x3 = a0[k], a1[k], a2[k], a3[k]
        y0, y1, y2, y3 = b0[k], b1[k], b2[k], b3[k]
        s00 += x0 * y0
        s01 += x0 * y1
        s02 += x0 * y2
        s03 += x0 * y3
        s10 += x1 * y0
        s11 += x1 * y1
        s12 += x1 * y2
        s13 += x1 * y3
        s20 += x2 * y0
        s21 += x2 * y1
        s22 += x2 * y2
        s23 += x2 * y3
        s30 += x3 * y0
        s31 += x3 * y1
        s32 += x3 * y2
        s33 += x3 * y3
    found = ((s00, s01, s02, s03), (s10, s11, s12, s13), (s20, s21, s22, s23), (s30, s31, s32, s33))
    for a in range(SIDE):
        for b in range(SIDE):
            sums[i + a, j + b] += found[a][b]
