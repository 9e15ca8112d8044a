"""How exactly a plain mean of 16-bit numbers is rounded, against exact fractions, whatever their exponents.

Summed in fp32 it is the nearest number to the exact mean wherever the values lie within 2^(24 - precision - log2 M) of each
other; a value that is smaller still can be lost, which moves the mean by less than (M - 1) 2^-24 of the mean size.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.engine.arithmetic import run_kernel
from tests.exact import PRECISION, SMALLEST_EXPONENT, exact_row, fraction_of, nearest

DTYPES = ("BF16", "F16")


def drawn(dtype: str, count: int, *, spread: int, seed: int, n: int = 400) -> np.ndarray:
    """Rows of bits whose values of one column lie within 2^spread, some of them zero."""
    rng = np.random.default_rng(seed)
    low = 20 if dtype == "BF16" else 1
    high = 200 if dtype == "BF16" else 29 - math.ceil(math.log2(count))
    top = rng.integers(low + min(spread, high - low), high + 1, size=n)
    exponents = np.maximum(top - rng.integers(0, spread + 1, size=(count, n)), low)
    fractions = rng.integers(0, 1 << (PRECISION[dtype] - 1), size=(count, n))
    fractions[:, ::3] &= 3 << (PRECISION[dtype] - 3)  # few bits: ties are frequent
    bits = (exponents << (PRECISION[dtype] - 1)) | fractions | (rng.integers(0, 2, size=(count, n)) << 15)
    bits[rng.random((count, n)) < 0.05] = 0
    return bits.astype(np.uint16)


def mean(bits: np.ndarray, dtype: str, *, accelerate: bool) -> np.ndarray:
    everyone = [dict.fromkeys(range(len(bits)), 1.0)]
    return run_kernel(bits, everyone, dtype=dtype, out_dtype=dtype, plain=True, accelerate=accelerate)[0][0]


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_within_the_bound_a_mean_is_rounded_once(dtype, count, accelerate):
    spread = 24 - PRECISION[dtype] - math.ceil(math.log2(count))
    bits = drawn(dtype, count, spread=spread, seed=count)
    exact = exact_row(bits, [Fraction(1, count)] * count, dtype=dtype, out_dtype=dtype)
    assert np.array_equal(mean(bits, dtype, accelerate=accelerate), exact)


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_beyond_it_what_is_lost_is_below_its_bound(dtype, accelerate):
    count = 4
    bits = drawn(dtype, count, spread=60, seed=1)
    found = mean(bits, dtype, accelerate=accelerate)
    for column, result in zip(bits.T.tolist(), found.tolist(), strict=True):
        values = [fraction_of(x, dtype) for x in column]
        lost = Fraction(count - 1, count) * sum(map(abs, values)) / 2**24
        size = max(sum(map(abs, values)) / count, Fraction(2) ** SMALLEST_EXPONENT[dtype])
        exact, step = sum(values) / count, Fraction(2) ** (math.floor(math.log2(size)) + 1 - PRECISION[dtype])
        assert abs(fraction_of(result, dtype) - exact) <= lost + max(step, lost) / 2 + size / 2**24


def test_the_case_that_a_stranger_found_is_of_this_kind():
    numbers = [Fraction(129, 64), Fraction(1), Fraction(1), Fraction(1, 2**30)]
    bits = np.array([[nearest(number, "BF16")] for number in numbers], np.uint16)
    assert fraction_of(mean(bits, "BF16", accelerate=False)[0], "BF16") == 1
    assert fraction_of(nearest(sum(numbers) / 4, "BF16"), "BF16") == Fraction(129, 128)
    weighted = run_kernel(
        bits, [{0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}], dtype="BF16", out_dtype="BF16", plain=False, accelerate=False
    )[0][0]
    assert fraction_of(weighted[0], "BF16") == Fraction(129, 128)  # summed in fp64, as weights that differ are
