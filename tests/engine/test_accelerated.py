"""numba and numpy are two spellings of one function: the same bits for every finite result."""

import numpy as np
import pytest

from tests.engine.arithmetic import PAIRS, any_bits, drifting_bits, run_kernel
from tests.exact import infinity

ROWS = [
    {0: 1.0},
    {0: 0.25, 1: 0.75},
    {0: 0.3, 1: 0.3, 2: 0.4},
    {0: 0.3, 1: 0.3, 2: -0.1, 3: 0.5},
    dict.fromkeys(range(9), 1 / 9),
    {2: 1.7, 5: -0.7},
    dict.fromkeys(range(3, 9), 1 / 6),
    dict.fromkeys(range(1, 9), 1 / 8),
    {0: 0.3, 1: 0.3, 2: 0.4, 4: 0.1, 5: 0.1, 8: -0.1},  # three members, four and seven after a shared beginning
    {0: 0.3, 1: 0.3, 2: 0.4, 3: 0.1, 4: 0.1, 5: 0.1, 8: -0.1},
    {0: 0.25, 1: 0.75, 2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1, 6: 0.1, 7: 0.1, 8: 0.1},
]  # together they take an input more than twice in the mean, and so decode it ahead; alone they do not


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
def test_numpy_and_numba_agree_on_every_bit(dtype, out_dtype, plain):
    for inputs in (any_bits(dtype, count=9, items=17_001), drifting_bits(dtype, count=9, items=1025)):
        call = {"dtype": dtype, "out_dtype": out_dtype, "plain": plain}
        slow, slow_finite = run_kernel(inputs, ROWS, **call, accelerate=False)
        fast, fast_finite = run_kernel(inputs, ROWS, **call, accelerate=True)
        finite = (slow & infinity(out_dtype)) != infinity(out_dtype)  # what overflows is noticed, its bits are nothing
        np.testing.assert_array_equal(slow[finite], fast[finite])
        assert finite.sum() > 1000
        assert slow_finite == fast_finite == finite.all()


def test_the_random_patterns_reach_subnormals_both_zeros_and_overflow():
    inputs = any_bits("BF16", count=9, items=17_001)
    body = inputs & 0x7FFF
    assert ((body > 0) & (body < 0x80)).any()
    assert (inputs == 0).any()
    assert (inputs == 0x8000).any()
    assert (body < infinity("BF16")).all()
    _, finite = run_kernel(inputs, ROWS, dtype="BF16", out_dtype="BF16", plain=True, accelerate=True)
    assert not finite


@pytest.mark.parametrize("items", [1, 2, 1023, 1024, 1025, 16_383, 16_384, 16_385])
def test_lengths_around_the_chunk_sizes_agree(items):
    inputs = drifting_bits("BF16", count=9, items=items)
    for plain in (True, False):
        call = {"dtype": "BF16", "out_dtype": "BF16", "plain": plain}
        slow, _ = run_kernel(inputs, ROWS, **call, accelerate=False)
        fast, _ = run_kernel(inputs, ROWS, **call, accelerate=True)
        np.testing.assert_array_equal(slow, fast)


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("plain", [True, False])
def test_rows_computed_together_equal_rows_computed_alone(plain, accelerate):
    inputs = drifting_bits("BF16", count=9, items=3000)
    call = {"dtype": "BF16", "out_dtype": "BF16", "plain": plain, "accelerate": accelerate}
    together, _ = run_kernel(inputs, ROWS, **call)
    for row, expected in zip(ROWS, together, strict=True):
        np.testing.assert_array_equal(run_kernel(inputs, [row], **call)[0][0], expected)


@pytest.mark.parametrize("place", [0, 511, 512, 1023, 1024, 2999])
def test_one_tie_that_fp32_would_lose_is_found_wherever_it_stands(place):
    """1 + 2^-8 + 2^-40: the nearest fp32 number lies half-way between two bf16 numbers, the number itself does not."""
    inputs = np.full((3, 3000), 0x3F80, np.uint16)  # ones
    inputs[1:] = 0
    inputs[:, place] = 0x3F80, 0x3B80, 0x2B80
    call = {"dtype": "BF16", "out_dtype": "BF16", "plain": False}
    rows = [{0: 1.0, 1: 1.0, 2: 1.0}]
    (fast,), finite = run_kernel(inputs, rows, **call, accelerate=True)
    assert finite
    assert fast[place] == 0x3F81
    np.testing.assert_array_equal(run_kernel(inputs, rows, **call, accelerate=False)[0][0], fast)


@pytest.mark.parametrize("sign", [0, 0x8000])
def test_bf16_is_rounded_once_at_the_edges_of_its_range(sign):
    """Half-way between two numbers and a hair beside it, from the smallest normal number to the largest, zeros between."""
    steps = np.concatenate([np.arange(0x007E, 0x0110), np.arange(0x3F70, 0x4010), np.arange(0x7F00, 0x7F80)])
    inputs = np.zeros((3, 4 * len(steps)), np.uint16)
    inputs[0] = np.repeat(steps, 4) | sign
    exponent = inputs[0] & 0x7F80
    half = np.maximum(exponent.astype(np.int64) - (8 << 7), 0).astype(np.uint16)  # half a step, where it is normal
    inputs[1, 1::4] = inputs[1, 2::4] = inputs[1, 3::4] = half[::4] | sign
    hair = np.maximum(half.astype(np.int64) - (20 << 7), 0).astype(np.uint16)
    inputs[2, 2::4], inputs[2, 3::4] = hair[::4] | sign, hair[::4] | (sign ^ 0x8000)
    rows = [{0: 1.0, 1: 1.0, 2: 1.0}]
    call = {"dtype": "BF16", "out_dtype": "BF16", "plain": False}
    for block in np.array_split(inputs, 37, axis=1):  # some without a number outside
        (fast,), fast_finite = run_kernel(np.ascontiguousarray(block), rows, **call, accelerate=True)
        (slow,), slow_finite = run_kernel(np.ascontiguousarray(block), rows, **call, accelerate=False)
        finite = (slow & infinity("BF16")) != infinity("BF16")
        np.testing.assert_array_equal(fast[finite], slow[finite])
        assert fast_finite == slow_finite == finite.all()
