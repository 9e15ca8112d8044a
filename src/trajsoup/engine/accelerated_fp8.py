# pyright: reportCallIssue=false
"""`store.fp8.quantised` compiled by numba: one pass for each block, the same bits."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trajsoup.engine.accelerated import _COMPILE, _bits
from trajsoup.store.fp8 import DECODED, LARGEST, SMALLEST_NORMAL, Blocks, Quantised, rounded_scales


def quantised(values: NDArray[np.float32], blocks: Blocks) -> Quantised:
    """Codes and scales of some rows that begin where a block does."""
    largest = np.zeros(blocks.shape(values.shape), np.float32)
    _largest(values, blocks.rows, blocks.columns, largest)
    scales, bits = rounded_scales(largest, blocks)
    codes = np.empty(values.shape, np.uint8)
    error, magnitude, worst = _encode(values, blocks.rows, blocks.columns, scales, DECODED, codes)
    return Quantised(codes, bits, error, magnitude, worst)


@njit(**_COMPILE)
def _largest(values: NDArray[np.float32], rows: int, columns: int, out: NDArray[np.float32]) -> None:
    for i in range(values.shape[0]):
        for block in range(out.shape[1]):
            most = out[i // rows, block]
            for j in range(block * columns, min((block + 1) * columns, values.shape[1])):
                most = max(most, abs(values[i, j]))
            out[i // rows, block] = most


@njit(**_COMPILE)
def _encode(
    values: NDArray[np.float32],
    rows: int,
    columns: int,
    scales: NDArray[np.float32],
    decoded: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> tuple[float, float, float]:
    error, magnitude, worst = 0.0, 0.0, np.float32(0)
    for i in range(values.shape[0]):
        for block in range(scales.shape[1]):
            scale = scales[i // rows, block]
            for j in range(block * columns, min((block + 1) * columns, values.shape[1])):
                value = values[i, j]
                scaled = value / scale
                size = min(abs(scaled), LARGEST)
                if size < SMALLEST_NORMAL:
                    code = np.uint32(np.rint(size * np.float32(512)))
                else:
                    bits = _bits(size)
                    code = ((bits + np.uint32(0x7FFFF) + ((bits >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)) - (
                        np.uint32(960)
                    )
                code |= (_bits(scaled) >> np.uint32(24)) & np.uint32(0x80)
                codes[i, j] = code
                lost = abs(decoded[code] * scale - value)
                error += lost
                magnitude += abs(value)
                if abs(scaled) >= SMALLEST_NORMAL:
                    worst = max(worst, lost / abs(value))
    return error, magnitude, float(worst)
