"""Floating-point numbers as fractions: what a result would be if it were rounded once and never before."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np

WIDTH = {"BF16": 16, "F16": 16, "F32": 32, "F64": 64}
PRECISION = {"BF16": 8, "F16": 11, "F32": 24, "F64": 53}  # bits of the significand, the hidden one included
SMALLEST_EXPONENT = {"BF16": -126, "F16": -14, "F32": -126, "F64": -1022}


def infinity(dtype: str) -> int:
    """The bits of plus infinity: all ones in the exponent."""
    fraction_bits = PRECISION[dtype] - 1
    return ((1 << (WIDTH[dtype] - 1 - fraction_bits)) - 1) << fraction_bits


@functools.lru_cache(maxsize=1 << 18)
def fraction_of(bits: int, dtype: str) -> Fraction:
    """The number that these bits stand for."""
    bits, fraction_bits = int(bits), PRECISION[dtype] - 1
    sign = -1 if bits >> (WIDTH[dtype] - 1) else 1
    body = bits & ((1 << (WIDTH[dtype] - 1)) - 1)
    assert body < infinity(dtype)
    exponent, fraction = body >> fraction_bits, body & ((1 << fraction_bits) - 1)
    if exponent:
        fraction |= 1 << fraction_bits
    scale = max(exponent, 1) - 1 + SMALLEST_EXPONENT[dtype] - fraction_bits
    return sign * Fraction(fraction) * Fraction(2) ** scale


def nearest(number: Fraction, dtype: str) -> int:
    """The bits of the number nearest to `number`, ties to even. Zero comes without a sign."""
    size, fraction_bits = abs(number), PRECISION[dtype] - 1
    if not size:
        return 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    exponent = max(exponent, SMALLEST_EXPONENT[dtype])
    steps = round(size / Fraction(2) ** (exponent - fraction_bits))  # Python rounds fractions half to even
    body = ((exponent - SMALLEST_EXPONENT[dtype]) << fraction_bits) + steps
    return min(body, infinity(dtype)) | (int(number < 0) << (WIDTH[dtype] - 1))


def exact_row(inputs: np.ndarray, weights: list[Fraction], *, dtype: str, out_dtype: str) -> np.ndarray:
    """Round sum_m w_m x_m once, element by element. `inputs` has a row of bits per ingredient."""
    return _exact_row(inputs.dtype.str, inputs.shape, inputs.tobytes(), tuple(weights), dtype, out_dtype)


@functools.lru_cache(maxsize=1024)  # every kernel is compared with the same rows
def _exact_row(
    kind: str, shape: tuple[int, ...], data: bytes, weights: tuple[Fraction, ...], dtype: str, out_dtype: str
) -> np.ndarray:
    columns = np.frombuffer(data, kind).reshape(shape).T.tolist()
    one = weights[0] if len(set(weights)) == 1 else None
    sums = (
        one * sum(fraction_of(x, dtype) for x in column)
        if one is not None
        else sum(w * fraction_of(x, dtype) for w, x in zip(weights, column, strict=True))
        for column in columns
    )
    return np.array([nearest(number, out_dtype) for number in sums], dtype=f"u{WIDTH[out_dtype] // 8}")
