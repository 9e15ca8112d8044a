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

CHUNK = 1024
OFTEN = 2  # uses of an input in the mean, above which all are decoded ahead of them
_COMPILE: dict[str, Any] = {"_nrt": False, "nogil": True, "cache": True, "boundscheck": False, "error_model": "numpy"}
_INLINE = {**_COMPILE, "inline": "always"}


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
def _itself(x):
    return x


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
    accumulator = np.float32 if single else np.float64
    number = np.float64 if dtype == "F64" else np.float32

    def run(bits: Bits, shifts: NDArray[np.int64], n: int, program: Program, out: Bits) -> bool:
        p = program
        steps = (p.fresh, p.source, p.target, p.first, p.last, p.members, p.emit_first, p.emit_last, p.rows, p.leaf)
        sums = np.empty((p.accumulators + 1, CHUNK), accumulator)
        ahead = len(p.members) > OFTEN * len(p.used)
        numbers = np.empty((len(bits) if ahead else 0, CHUNK), number)
        compiled = _kernel(dtype, out_dtype, single=single, ahead=ahead)
        return bool(compiled(bits, shifts, n, p.used, numbers, steps, p.factors, p.divisors, sums, out))

    return run


@functools.cache
def _kernel(dtype: str, out_dtype: str, *, single: bool, ahead: bool) -> Any:
    """With `ahead`, inputs that several rows need are decoded once for all of them, a chunk at a time."""
    decode = DECODE[dtype]
    inputs: dict[str, Any] = {"prepare": _leave, "part": _stored}
    if ahead:
        inputs = {"prepare": specialised(_decode_all, f"decode_{dtype}", decode=decode), "part": _decoded}
        decode = _itself
    name = f"{dtype}_{out_dtype}_{'decoded' if ahead else 'stored'}"
    if single:
        term = specialised(_alone, f"alone_{name}", decode=decode)
        emit = specialised(_emit_mean, f"emit_mean_{dtype}", compile=_INLINE, store=_STORE[dtype])
        ends = {"emit": emit, "unsound": _unsound}
    else:
        term = specialised(_times, f"times_{name}", decode=decode)
        emit = specialised(_emit_weighted, f"emit_weighted_{out_dtype}", compile=_INLINE, emit=_rounding(out_dtype))
        ends = {"emit": emit, "unsound": _emitted}
    name = f"{'mean' if single else 'weighted'}_{name}"
    begin = specialised(_lead, f"begin_{name}", compile=_INLINE, part=inputs["part"], term=term, plus=_only)
    go_on = specialised(_lead, f"go_on_{name}", compile=_INLINE, part=inputs["part"], term=term, plus=_sum)
    return specialised(_blend, name, begin=begin, go_on=go_on, term=term, **inputs, **ends)


def _rounding(out_dtype: str) -> Any:
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
        return specialised(_emit_bf16, "emit_quickly", again=emit, **quick)
    return emit


def specialised(template: Any, name: str, *, compile: Mapping[str, Any] = _COMPILE, **constants: Any) -> Any:
    """Compile `template` with its free names bound. A name of its own lets numba keep the result on disk, which it
    does not do for closures: a second process would compile for a second or two again."""
    function = type(template)(template.__code__, {**template.__globals__, **constants}, name)
    function.__qualname__ = name
    return njit(**compile)(function)


def _blend(bits, shifts, n, used, numbers, steps, factors, divisors, sums, out):
    fresh, source, target, first, last, members, emit_first, emit_last, rows, leaf = steps
    worst = False
    for start in range(0, n, CHUNK):
        length = min(CHUNK, n - start)
        prepare(bits, shifts, start, length, used, numbers)
        for step in range(len(target)):
            total = sums[target[step], :length]
            lead = (last[step] - first[step] - 1) % 4 + 1
            if fresh[step]:
                begin(bits, shifts, numbers, members, factors, first[step], lead, start, total, total)
            else:
                before = sums[source[step], :length]
                go_on(bits, shifts, numbers, members, factors, first[step], lead, start, before, total)
            for j in range(first[step] + lead, last[step], 4):  # the sum goes through the cache once for four
                a = part(bits, shifts, numbers, members[j], start, length)
                b = part(bits, shifts, numbers, members[j + 1], start, length)
                c = part(bits, shifts, numbers, members[j + 2], start, length)
                d = part(bits, shifts, numbers, members[j + 3], start, length)
                f, g, h, k = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
                for i in range(length):
                    two = (total[i] + term(a[i], f)) + term(b[i], g)
                    total[i] = (two + term(c[i], h)) + term(d[i], k)
            for e in range(emit_first[step], emit_last[step]):
                row = rows[e]
                worst |= emit(total, divisors[row], sums[len(sums) - 1, :length], out[row, start : start + length])
            if leaf[step]:
                worst |= unsound(total)
    return not worst


def _lead(bits, shifts, numbers, members, factors, j, lead, start, before, total):
    """One to four members, added to what was before."""
    length = len(total)
    a = part(bits, shifts, numbers, members[j], start, length)
    f = factors[j]
    if lead == 1:
        for i in range(length):
            total[i] = plus(before[i], term(a[i], f))
        return
    b = part(bits, shifts, numbers, members[j + 1], start, length)
    g = factors[j + 1]
    if lead == 2:
        for i in range(length):
            total[i] = plus(before[i], term(a[i], f)) + term(b[i], g)
        return
    c = part(bits, shifts, numbers, members[j + 2], start, length)
    h = factors[j + 2]
    if lead == 3:
        for i in range(length):
            total[i] = (plus(before[i], term(a[i], f)) + term(b[i], g)) + term(c[i], h)
        return
    d = part(bits, shifts, numbers, members[j + 3], start, length)
    k = factors[j + 3]
    for i in range(length):
        two = plus(before[i], term(a[i], f)) + term(b[i], g)
        total[i] = (two + term(c[i], h)) + term(d[i], k)


@njit(**_COMPILE)
def _only(before, value):
    return value


@njit(**_COMPILE)
def _sum(before, value):
    return before + value


@njit(**_INLINE)
def _leave(bits, shifts, start, length, used, numbers):
    pass


@njit(**_INLINE)
def _stored(bits, shifts, numbers, m, start, length):
    begin = shifts[m] + start
    return bits[m, begin : begin + length]


def _decode_all(bits, shifts, start, length, used, numbers):
    for m in used:
        begin = shifts[m] + start
        a = bits[m, begin : begin + length]
        number = numbers[m, :length]
        for i in range(length):
            number[i] = decode(a[i])


@njit(**_INLINE)
def _decoded(bits, shifts, numbers, m, start, length):
    return numbers[m, :length]


def _alone(x, factor):
    return decode(x)


def _times(x, factor):
    return np.float64(decode(x)) * factor  # no product is fused with its sum


def _emit_mean(total, divisor, spare, result):
    single = np.float32(divisor)
    if _bits(single) & np.uint32(0x7FFFFF) == 0:  # a power of two: multiplying is exact too, and faster
        factor = np.float32(1) / single
        for i in range(len(total)):
            result[i] = store(_bits(total[i] * factor))
    else:
        for i in range(len(total)):
            result[i] = store(_bits(total[i] / single))
    return False


@njit(**_INLINE)
def _unsound(total):
    """NaN and Inf pass on to every later sum, and a mean of finite values cannot overflow: the last sums tell of all."""
    reach = np.uint32(0)
    for i in range(len(total)):
        reach |= (_bits(total[i]) & np.uint32(0x7FFFFFFF)) + np.uint32(0x00800000)
    return (reach & np.uint32(0x80000000)) != 0


def _emit_weighted(total, divisor, spare, result):
    if divisor == 1.0:
        return emit(total, result)
    for i in range(len(total)):
        spare[i] = total[i] / divisor
    return emit(spare, result)


@njit(**_INLINE)
def _emitted(total):
    """Every row was looked at when it was rounded."""
    return False


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
    furthest = np.uint64(0)
    for i in range(len(total)):
        number = double_bits(total[i])
        size = number & body
        furthest = max(furthest, size - least)
        rounded = (size + half + ((size >> np.uint64(45)) & np.uint64(1))) >> np.uint64(45)
        result[i] = np.uint16(rounded | ((number >> np.uint64(48)) & np.uint64(0x8000)))
    return again(total, result) if furthest > most - least else False
