# pyright: reportCallIssue=false, reportUndefinedVariable=false
# ruff: noqa: F821 -- `decode`, `store`, ... of the two templates are bound by `specialised`
"""The kernels of kernels.py compiled by numba: one pass over cache-sized chunks, no temporary per input."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from trajsoup.engine.program import Bits, Kernel, Program

CHUNK = 1024  # elements; accumulators and what is added to them stay in the first-level cache
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
def _bf16_of(word):
    return np.uint16((word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@njit(**_COMPILE)
def _f16_of(word):
    """fp32 bits to fp16, nearest even; subnormals by letting an addition do the rounding."""
    sign = (word >> np.uint32(16)) & np.uint32(0x8000)
    body = word & np.uint32(0x7FFFFFFF)
    normal = (body + np.uint32(0xC8000FFF) + ((body >> np.uint32(13)) & np.uint32(1))) >> np.uint32(13)
    small = _bits(_float(body) + np.float32(0.5)) - np.uint32(0x3F000000)
    half = small if body < np.uint32(0x38800000) else normal
    return np.uint16(half | sign)


@njit(**_COMPILE)
def _same(word):
    return word


@njit(**_COMPILE)
def _nearest(value):
    """fp64 to fp32, nearest even, as bits."""
    return _bits(np.float32(value))


# How a sum becomes a word (32 or 64 bits) and the word the stored bits; and what, added to the word without its sign,
# reaches the top bit exactly if the stored value would be infinite or not a number.
DECODE = {"BF16": _from_bf16, "F16": _from_f16, "F32": _from_f32, "F64": _from_f64}
_WORD = {"BF16": _odd, "F16": _odd, "F32": _nearest, "F64": _double_bits}
_STORE = {"BF16": _bf16_of, "F16": _f16_of, "F32": _same, "F64": _same}
_BODY = {"F64": np.uint64(0x7FFFFFFFFFFFFFFF)}
_MARGIN = {
    "BF16": np.uint32(0x80000000 - 0x7F7F8000),
    "F16": np.uint32(0x80000000 - 0x477FF000),
    "F32": np.uint32(0x80000000 - 0x7F800000),
    "F64": np.uint64(0x8000000000000000 - 0x7FF0000000000000),
}
# Of fp64 numbers that become normal bf16 ones: the bits of the smallest, and of the largest that is not rounded to infinity;
# and what rounds 45 bits away and moves the exponent.
_LEAST = np.float64(2.0**-126).view(np.uint64)
_MOST = np.float64((2 - 2.0**-8) * 2.0**127).view(np.uint64) - np.uint64(1)
_HALF = np.uint64((2**44 - 1 - (896 << 52)) % 2**64)


def kernel(dtype: str, out_dtype: str, *, single: bool) -> Kernel:
    """Return the compiled kernel in the calling convention of kernels.py."""
    compiled = _mean_kernel(dtype) if single else _weighted_kernel(dtype, out_dtype)
    accumulator = np.float32 if single else np.float64

    def run(bits: Bits, shifts: NDArray[np.int64], n: int, program: Program, out: Bits) -> bool:
        sums = np.empty(
            (program.accumulators + 2, CHUNK), accumulator
        )  # the last two are for quotients and for nothing
        p = program
        steps = (p.fresh, p.source, p.target, p.first, p.last, p.members, p.emit_first, p.emit_last, p.rows, p.leaf)
        return bool(compiled(bits, shifts, n, steps, p.factors, p.divisors, sums, out))

    return run


@functools.cache
def _mean_kernel(dtype: str) -> Any:
    return specialised(
        _mean,
        f"mean_{dtype}",
        decode=DECODE[dtype],
        store=_STORE[dtype],
        margin=_MARGIN["F32"],
        body=np.uint32(0x7FFFFFFF),
        top=np.uint32(0x80000000),
    )


@functools.cache
def _weighted_kernel(dtype: str, out_dtype: str) -> Any:
    body = _BODY.get(out_dtype, np.uint32(0x7FFFFFFF))
    emit = specialised(
        _emit,
        f"emit_{out_dtype}",
        to_word=_WORD[out_dtype],
        store=_STORE[out_dtype],
        margin=_MARGIN[out_dtype],
        body=body,
        top=body + type(body)(1),
    )
    if out_dtype == "BF16":
        quick = {"double_bits": _double_bits, "body": _BODY["F64"], "least": _LEAST, "most": _MOST, "half": _HALF}
        emit = specialised(_emit_bf16, "emit_quickly", again=emit, **quick)
    return specialised(_weighted, f"weighted_{dtype}_{out_dtype}", decode=DECODE[dtype], emit=emit)


def specialised(template: Any, name: str, *, compile: Mapping[str, Any] = _COMPILE, **constants: Any) -> Any:
    """Compile `template` with its free names bound. A name of its own lets numba keep the result on disk, which it
    does not do for closures: a second process would compile for a second or two again."""
    function = type(template)(template.__code__, {**template.__globals__, **constants}, name)
    function.__qualname__ = name
    return njit(**compile)(function)


def _mean(bits, shifts, n, steps, factors, divisors, sums, out):
    fresh, source, target, first, last, members, emit_first, emit_last, rows, leaf = steps
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
                begin = shifts[members[j]] + start
                a = bits[members[j], begin : begin + length]
                before = sums[source[step], :length]
                for i in range(length):
                    total[i] = before[i] + decode(a[i])
                j += 1
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
                if _bits(divisor) & np.uint32(0x7FFFFF) == 0:  # a power of two: multiplying is exact too, and faster
                    factor = np.float32(1) / divisor
                    for i in range(length):
                        result[i] = store(_bits(total[i] * factor))
                else:
                    for i in range(length):
                        result[i] = store(_bits(total[i] / divisor))
            if leaf[step]:  # NaN and Inf pass on to every later sum, and a mean of finite values cannot overflow
                reach = np.uint32(0)
                for i in range(length):
                    reach |= (_bits(total[i]) & body) + margin
                worst |= (reach & top) != 0
    return not worst


def _weighted(bits, shifts, n, steps, factors, divisors, sums, out):
    fresh, source, target, first, last, members, emit_first, emit_last, rows, _ = steps
    worst = False
    for start in range(0, n, CHUNK):
        length = min(CHUNK, n - start)
        for step in range(len(target)):
            total = sums[target[step], :length]
            j = first[step]
            begin = shifts[members[j]] + start
            a = bits[members[j], begin : begin + length]
            f = factors[j]
            if fresh[step]:
                for i in range(length):
                    total[i] = np.float64(decode(a[i])) * f
            else:
                before = sums[source[step], :length]
                for i in range(length):
                    total[i] = before[i] + np.float64(decode(a[i])) * f
            j += 1
            while j + 4 <= last[step]:  # as in `_mean`; no product is fused with its sum
                b0, b1 = shifts[members[j]] + start, shifts[members[j + 1]] + start
                b2, b3 = shifts[members[j + 2]] + start, shifts[members[j + 3]] + start
                a = bits[members[j], b0 : b0 + length]
                b = bits[members[j + 1], b1 : b1 + length]
                c = bits[members[j + 2], b2 : b2 + length]
                d = bits[members[j + 3], b3 : b3 + length]
                f, g, h, k = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
                for i in range(length):
                    two = (total[i] + np.float64(decode(a[i])) * f) + np.float64(decode(b[i])) * g
                    total[i] = (two + np.float64(decode(c[i])) * h) + np.float64(decode(d[i])) * k
                j += 4
            while j < last[step]:
                begin = shifts[members[j]] + start
                a = bits[members[j], begin : begin + length]
                f = factors[j]
                for i in range(length):
                    total[i] += np.float64(decode(a[i])) * f
                j += 1
            for e in range(emit_first[step], emit_last[step]):
                divisor = divisors[rows[e]]
                result = out[rows[e], start : start + length]
                if divisor == 1.0:
                    worst |= emit(total, result)
                else:
                    quotient = sums[len(sums) - 1, :length]
                    for i in range(length):
                        quotient[i] = total[i] / divisor
                    worst |= emit(quotient, result)
    return not worst


def _emit(total, result):
    """Round and store; is a number infinite or none?"""
    reach = body ^ body
    for i in range(len(total)):
        word = to_word(total[i])
        reach |= (word & body) + margin
        result[i] = store(word)
    return (reach & top) != 0


def _emit_bf16(total, result):
    """The same for bf16, rounded once in integers: an fp64 number within bf16's range loses 45 bits of its fraction, and 896
    of its exponent. Where one is outside (zero, subnormal, too large, no number) all are rounded again, by way of fp32."""
    outside = np.uint64(0)
    for i in range(len(total)):
        number = double_bits(total[i])
        size = number & body
        outside |= (size - least) | (most - size)
        rounded = (number + half + ((number >> np.uint64(45)) & np.uint64(1))) >> np.uint64(45)
        result[i] = np.uint16((rounded & np.uint64(0x7FFF)) | ((number >> np.uint64(48)) & np.uint64(0x8000)))
    return again(total, result) if outside >> np.uint64(63) else False
