# pyright: reportCallIssue=false
"""The kernels of kernels.py compiled by numba: one pass over cache-sized chunks, no temporary per input."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from trajsoup.engine.kernels import EXPONENT, Bits, Kernel
from trajsoup.engine.program import Program

CHUNK = 1024  # elements; accumulators stay in the first-level cache
_COMPILE: dict[str, Any] = {"nogil": True, "cache": True, "boundscheck": False, "error_model": "numpy"}


@intrinsic
def _float(context: Any, bits: Any) -> Any:
    """The fp32 number with these 32 bits."""
    return types.float32(types.uint32), lambda c, builder, s, args: builder.bitcast(args[0], ir.FloatType())


@intrinsic
def _bits(context: Any, number: Any) -> Any:
    """The 32 bits of this fp32 number."""
    return types.uint32(types.float32), lambda c, builder, s, args: builder.bitcast(args[0], ir.IntType(32))


@intrinsic
def _double(context: Any, bits: Any) -> Any:
    return types.float64(types.uint64), lambda c, builder, s, args: builder.bitcast(args[0], ir.DoubleType())


@intrinsic
def _double_bits(context: Any, number: Any) -> Any:
    return types.uint64(types.float64), lambda c, builder, s, args: builder.bitcast(args[0], ir.IntType(64))


@njit(**_COMPILE)
def _from_bf16(x):
    return _float(np.uint32(x) << np.uint32(16))


@njit(**_COMPILE)
def _from_f16(x):
    """Move exponent and fraction into place and rescale: exact for every number, subnormal or not."""
    body = np.uint32(x & np.uint16(0x7FFF)) << np.uint32(13)
    scaled = _float(body) * np.float32(2.0**112)
    if body >= np.uint32(0x7C00 << 13):
        scaled = _float(body | np.uint32(0x7F800000))
    return _float(_bits(scaled) | (np.uint32(x & np.uint16(0x8000)) << np.uint32(16)))


@njit(**_COMPILE)
def _from_f32(x):
    return _float(x)


@njit(**_COMPILE)
def _from_f64(x):
    return _double(x)


@njit(**_COMPILE)
def _odd(value):
    """fp64 to fp32, rounded to odd."""
    single = np.float32(value)
    back = np.float64(single)
    bits = _bits(single)
    bits -= np.uint32(abs(back) > abs(value))
    return bits | np.uint32(back != value)


@njit(**_COMPILE)
def _bf16_of(bits):
    """fp32 bits to bf16, nearest even. NaN is set apart: rounding up the last one would turn it into a zero."""
    half = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    half = np.uint32(0x7FC0) if (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000) else half
    return np.uint16(half)


@njit(**_COMPILE)
def _f16_of(bits):
    """fp32 bits to fp16, nearest even; subnormals by letting an addition do the rounding."""
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    body = bits & np.uint32(0x7FFFFFFF)
    normal = (body + np.uint32(0xC8000FFF) + ((body >> np.uint32(13)) & np.uint32(1))) >> np.uint32(13)
    small = _bits(_float(body) + np.float32(0.5)) - np.uint32(0x3F000000)
    half = small if body < np.uint32(0x38800000) else normal
    half = np.uint32(0x7C00) if body >= np.uint32(0x477FF000) else half
    half = np.uint32(0x7E00) if body > np.uint32(0x7F800000) else half
    return np.uint16(half | sign)


@njit(**_COMPILE)
def _single_to_bf16(value):
    return _bf16_of(_bits(value))


@njit(**_COMPILE)
def _single_to_f16(value):
    return _f16_of(_bits(value))


@njit(**_COMPILE)
def _double_to_bf16(value):
    return _bf16_of(_odd(value))


@njit(**_COMPILE)
def _double_to_f16(value):
    return _f16_of(_odd(value))


@njit(**_COMPILE)
def _double_to_f32(value):
    return _bits(np.float32(value))


@njit(**_COMPILE)
def _double_to_f64(value):
    return _double_bits(value)


_DECODE = {"BF16": _from_bf16, "F16": _from_f16, "F32": _from_f32, "F64": _from_f64}
_ENCODE_SINGLE = {"BF16": _single_to_bf16, "F16": _single_to_f16}
_ENCODE_DOUBLE = {"BF16": _double_to_bf16, "F16": _double_to_f16, "F32": _double_to_f32, "F64": _double_to_f64}


def kernel(dtype: str, out_dtype: str, *, single: bool) -> Kernel:
    """Return the compiled kernel in the calling convention of kernels.py."""
    compiled = _mean_kernel(dtype, out_dtype) if single else _weighted_kernel(dtype, out_dtype)
    accumulator = np.float32 if single else np.float64

    def run(bits: Bits, shifts: NDArray[np.int64], n: int, program: Program, out: Bits) -> bool:
        sums = np.empty((program.accumulators, CHUNK), accumulator)
        p = program
        steps = (p.fresh, p.source, p.target, p.first, p.last, p.members, p.factors, p.emit_first, p.emit_last, p.rows)
        return bool(compiled(bits, shifts, n, steps, p.divisors, sums, out))

    return run


@functools.cache
def _mean_kernel(dtype: str, out_dtype: str) -> Any:
    decode, encode, mask = _DECODE[dtype], _ENCODE_SINGLE[out_dtype], np.uint16(EXPONENT[out_dtype])

    @njit(**_COMPILE)
    def run(bits, shifts, n, steps, divisors, sums, out):
        fresh, source, target, first, last, members, _, emit_first, emit_last, rows = steps
        worst = False
        for start in range(0, n, CHUNK):
            length = min(CHUNK, n - start)
            for step in range(len(target)):
                total = sums[target[step], :length]
                j = first[step]
                if fresh[step]:
                    begin = shifts[members[j]] + start
                    a = bits[members[j], begin : begin + length]
                    for i in range(length):
                        total[i] = decode(a[i])
                    j += 1
                else:
                    before = sums[source[step], :length]
                    for i in range(length):
                        total[i] = before[i]
                while j + 4 <= last[step]:  # four at a time: fewer trips of the sum through the cache, same order
                    b0, b1 = shifts[members[j]] + start, shifts[members[j + 1]] + start
                    b2, b3 = shifts[members[j + 2]] + start, shifts[members[j + 3]] + start
                    a = bits[members[j], b0 : b0 + length]
                    b = bits[members[j + 1], b1 : b1 + length]
                    c = bits[members[j + 2], b2 : b2 + length]
                    d = bits[members[j + 3], b3 : b3 + length]
                    for i in range(length):
                        total[i] = (((total[i] + decode(a[i])) + decode(b[i])) + decode(c[i])) + decode(d[i])
                    j += 4
                while j < last[step]:
                    begin = shifts[members[j]] + start
                    a = bits[members[j], begin : begin + length]
                    for i in range(length):
                        total[i] += decode(a[i])
                    j += 1
                for e in range(emit_first[step], emit_last[step]):
                    divisor = np.float32(divisors[rows[e]])
                    result = out[rows[e], start : start + length]
                    bad = np.uint16(0)
                    for i in range(length):
                        half = encode(total[i] / divisor)
                        bad |= np.uint16((half & mask) == mask)
                        result[i] = half
                    worst |= bad != 0
        return not worst

    return run


@functools.cache
def _weighted_kernel(dtype: str, out_dtype: str) -> Any:
    decode, encode = _DECODE[dtype], _ENCODE_DOUBLE[out_dtype]
    mask = {"F32": np.uint32, "F64": np.uint64}.get(out_dtype, np.uint16)(EXPONENT[out_dtype])

    @njit(**_COMPILE)
    def run(bits, shifts, n, steps, divisors, sums, out):
        fresh, source, target, first, last, members, factors, emit_first, emit_last, rows = steps
        worst = False
        for start in range(0, n, CHUNK):
            length = min(CHUNK, n - start)
            for step in range(len(target)):
                total = sums[target[step], :length]
                j = first[step]
                if fresh[step]:
                    begin = shifts[members[j]] + start
                    a = bits[members[j], begin : begin + length]
                    factor = factors[j]
                    for i in range(length):
                        total[i] = np.float64(decode(a[i])) * factor
                    j += 1
                else:
                    before = sums[source[step], :length]
                    for i in range(length):
                        total[i] = before[i]
                while j < last[step]:
                    begin = shifts[members[j]] + start
                    a = bits[members[j], begin : begin + length]
                    factor = factors[j]
                    for i in range(length):
                        total[i] += np.float64(decode(a[i])) * factor
                    j += 1
                for e in range(emit_first[step], emit_last[step]):
                    divisor = divisors[rows[e]]
                    result = out[rows[e], start : start + length]
                    bad = mask ^ mask
                    for i in range(length):
                        stored = encode(total[i] / divisor)
                        bad |= type(mask)((stored & mask) == mask)
                        result[i] = stored
                    worst |= bad != 0
        return not worst

    return run
