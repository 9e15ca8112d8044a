"""The arithmetic of a block: decode M inputs, accumulate, divide once, round to nearest even once.

Two families, each written twice with identical bits: numpy, always there, and numba (the extra `fast`), several
times faster. A test compares them bit by bit.

- plain means of 16-bit tensors that keep their dtype: sum in fp32, then divide by the count. This is the nearest number to
  the exact mean wherever the M values lie within 2^(16 - log2 M) of each other (fp16: 2^(13 - log2 M)); of a value that is
  smaller still a part may be lost, less than (M - 1) 2^-24 of the mean size of the values, which can turn a tie. The fp64
  kernel would not lose it, and takes 2.7 times as long (8 inputs, numba). tests/engine/test_wide_exponents.py holds both
  against exact fractions.
- everything else (weighted rows, fp32, fp64, other output dtypes): sum in fp64. On the way to 16 bits fp64 is rounded
  to fp32 *to odd*, so that the final rounding sees an inexact value as inexact and rounds once in effect.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.engine.program import Bits, Kernel, Program

BITS = {"BF16": np.dtype(np.uint16), "F16": np.dtype(np.uint16), "F32": np.dtype(np.uint32), "F64": np.dtype(np.uint64)}
EXPONENT = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000, "F64": 0x7FF0000000000000}
CHUNK = 16384  # elements; a few of these in fp64 fit the second-level cache


def kernel(dtype: str, out_dtype: str, *, plain: bool, accelerate: bool | None = None) -> Kernel:
    """Return `run(bits, shifts, n, program, out) -> finite` for the given dtypes.

    `bits[m, shifts[m]:shifts[m] + n]` are the inputs, `out[row, :n]` the results. `plain` says that every row is a
    mean. False comes back when a result is infinite or not a number. `accelerate=None` takes numba where it imports.
    """
    single = plain and dtype == out_dtype and dtype in ("BF16", "F16")
    if accelerate or (accelerate is None and accelerated()):
        from trajsoup.engine import accelerated as numba_kernels

        return numba_kernels.kernel(dtype, out_dtype, single=single)
    return functools.partial(_run, dtype, out_dtype, np.float32 if single else np.float64)


@functools.cache
def accelerated() -> bool:
    """Whether the numba kernels are at hand."""
    try:
        import numba  # noqa: F401  # pyright: ignore
    except ImportError:
        return False
    return True


def decode(bits: Bits, dtype: str, out: NDArray[np.floating[Any]]) -> None:
    """Turn stored bits into numbers of the accumulator's type, exactly."""
    match dtype:
        case "BF16" if out.dtype == np.float32:
            np.left_shift(bits, np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)
        case "BF16":
            out[...] = np.left_shift(bits, np.uint32(16), dtype=np.uint32).view(np.float32)
        case "F16":
            out[...] = bits.view(np.float16)
        case "F32":
            out[...] = bits.view(np.float32)
        case _:
            out[...] = bits.view(np.float64)


def encode(values: NDArray[np.floating[Any]], out_dtype: str) -> Bits:
    """Round to nearest even into the stored form."""
    with np.errstate(over="ignore", invalid="ignore"):
        match out_dtype:
            case "BF16":
                single = _to_fp32_odd(values)
                bits = single.view(np.uint32)
                rounded = bits >> np.uint32(16)
                rounded &= np.uint32(1)
                rounded += np.uint32(0x7FFF)
                rounded += bits
                rounded >>= np.uint32(16)
                halves = rounded.astype(np.uint16)
                if (nan := np.isnan(single)).any():  # rounding up the last NaN would turn it into a zero
                    halves[nan] = 0x7FC0
                return halves
            case "F16":
                return _to_fp32_odd(values).astype(np.float16).view(np.uint16)
            case "F32":
                return values.astype(np.float32).view(np.uint32)
            case _:
                return values.astype(np.float64).view(np.uint64)


def nonfinite(bits: Bits, dtype: str) -> NDArray[np.bool_]:
    """Which elements are infinite or not a number."""
    mask = bits.dtype.type(EXPONENT[dtype])
    return (bits & mask) == mask


def _run(
    dtype: str,
    out_dtype: str,
    accumulator: Any,
    bits: Bits,
    shifts: NDArray[np.int64],
    n: int,
    program: Program,
    out: Bits,
) -> bool:
    size = min(CHUNK, n)
    sums = np.empty((program.accumulators, size), accumulator)
    value = np.empty(size, accumulator)
    finite = True
    plain = accumulator is np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, n, CHUNK):
            length = min(CHUNK, n - start)
            for step in range(len(program.target)):
                total = sums[program.target[step], :length]
                empty = bool(program.fresh[step])
                if not empty:
                    total[...] = sums[program.source[step], :length]
                for j in range(program.first[step], program.last[step]):
                    m = program.members[j]
                    begin = int(shifts[m]) + start
                    term = total if empty else value[:length]
                    decode(bits[m, begin : begin + length], dtype, term)
                    if not plain:
                        term *= program.factors[j]
                    if not empty:
                        total += term
                    empty = False
                for e in range(program.emit_first[step], program.emit_last[step]):
                    row = program.rows[e]
                    quotient = total / accumulator(program.divisors[row])
                    result = encode(quotient, out_dtype)
                    finite &= bool(np.isfinite(quotient).all()) and not nonfinite(result, out_dtype).any()
                    out[row, start : start + length] = result
    return finite


def _to_fp32_odd(values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Round fp64 to fp32 to odd: truncate, then set the last bit if anything was lost. fp32 passes unchanged."""
    if values.dtype == np.float32:
        return values.astype(np.float32, copy=False)
    single = values.astype(np.float32)
    bits = single.view(np.uint32)
    back = single.astype(np.float64)
    bits -= (np.abs(back) > np.abs(values)).astype(np.uint32)
    bits |= (back != values).astype(np.uint32)
    return single
