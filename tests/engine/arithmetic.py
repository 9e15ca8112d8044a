"""Inputs for kernels, and one way to call them."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from tests.checkpoints import TORCH, bits_of
from tests.exact import WIDTH, infinity
from trajsoup.engine.kernels import kernel
from trajsoup.engine.program import compile_rows

FLOATS = ["BF16", "F16", "F32", "F64"]
PAIRS = list(itertools.product(FLOATS, FLOATS))


def any_bits(dtype: str, *, count: int, items: int, seed: int = 0) -> np.ndarray:
    """Random finite patterns: every exponent, subnormals, both zeros, numbers whose sum overflows."""
    unsigned = np.dtype(f"u{WIDTH[dtype] // 8}")
    bits = np.random.default_rng(seed).integers(0, 2 ** WIDTH[dtype], (count, items), unsigned, endpoint=False)
    bits[:, :4] = [0, 1, 1 << (WIDTH[dtype] - 1), infinity(dtype) - 1]  # 0, the least subnormal, -0, the largest
    mask = unsigned.type(infinity(dtype))
    return np.where(bits & mask == mask, bits ^ unsigned.type(1 << (WIDTH[dtype] - 2)), bits)


def drifting_bits(dtype: str, *, count: int, items: int, seed: int = 0) -> np.ndarray:
    """What checkpoints of one branch hold: numbers that differ a little from one to the next."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(0, 0.02, items) + rng.normal(0, 0.002, (count, items))
    return np.stack([bits_of(torch.from_numpy(row).to(TORCH[dtype])) for row in numbers])


def run_kernel(
    inputs: np.ndarray, rows: list[dict[int, float]], *, dtype: str, out_dtype: str, plain: bool, accelerate: bool
) -> tuple[np.ndarray, bool]:
    """Blend rows (ingredient -> weight; a plain row needs none but its members) from shifted buffers."""
    count, items = inputs.shape
    shifts = np.arange(count, dtype=np.int64) * 3 % 7
    buffer = np.full((count, items + 8), -1, inputs.dtype.str.replace("u", "i")).view(inputs.dtype)  # NaN all round
    for m, shift in enumerate(shifts):
        buffer[m, shift : shift + items] = inputs[m]
    members = {r: sorted((m, 1.0 if plain else w) for m, w in row.items()) for r, row in enumerate(rows)}
    divisors = np.array([float(len(row)) if plain else 1.0 for row in rows])
    out = np.empty((len(rows), items + 5), f"u{WIDTH[out_dtype] // 8}")
    run = kernel(dtype, out_dtype, plain=plain, accelerate=accelerate)
    finite = run(buffer, shifts, items, compile_rows(members, divisors=divisors), out)
    return out[:, :items], finite
