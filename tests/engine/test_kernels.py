"""The arithmetic against exact fractions, against torch and against numpy's own float16."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.checkpoints import TORCH, bits_of
from tests.engine.arithmetic import FLOATS, PAIRS, drifting_bits, run_kernel
from tests.exact import WIDTH, exact_row, fraction_of, infinity, nearest

both_kernels = pytest.mark.parametrize("accelerate", [False, True], ids=["numpy", "numba"])
ODD_WEIGHTS = [math.sqrt(2) - 1, -math.pi / 50, math.e / 6, 1 / 7, math.log(1.07)]  # no two numbers make a tie of these
ROUND_WEIGHTS = [0.3, -0.05, 0.45, 0.2, 0.1]


def test_the_reference_itself_rounds_as_torch_does():
    rng = np.random.default_rng(0)
    doubles = np.concatenate([rng.normal(0, 1, 300), rng.normal(0, 1e-40, 300), rng.normal(0, 1e-6, 300), [7e4, 4e38]])
    for dtype in ("BF16", "F16", "F32"):
        singles = torch.from_numpy(doubles).to(torch.float32)  # the reference starts where torch does
        with np.errstate(over="ignore"):
            expected = bits_of(singles.to(TORCH[dtype]))
        finite = [x for x in zip(bits_of(singles), expected, strict=True) if x[0] & 0x7FFFFFFF < infinity("F32")]
        for single, bits in finite:
            found = nearest(fraction_of(single, "F32"), dtype)
            assert found == bits or (found, bits) == (0, 1 << (WIDTH[dtype] - 1))


@both_kernels
def test_a_plain_bf16_mean_is_the_exact_mean_rounded_once_for_every_count(accelerate):
    inputs = drifting_bits("BF16", count=64, items=120)
    rows = [dict.fromkeys(range(count), 1.0) for count in range(1, 65)]
    found, finite = run_kernel(inputs, rows, dtype="BF16", out_dtype="BF16", plain=True, accelerate=accelerate)
    assert finite
    for count in range(1, 65):
        weights = [Fraction(1, count)] * count
        expected = exact_row(inputs[:count], weights, dtype="BF16", out_dtype="BF16")
        np.testing.assert_array_equal(found[count - 1], expected, err_msg=f"M={count}")


@both_kernels
@pytest.mark.parametrize("count", [3, 7, 12])
@pytest.mark.parametrize(("dtype", "out_dtype"), [pair for pair in PAIRS if pair[0] != "F64"])
def test_a_plain_mean_of_any_dtype_is_the_exact_mean_rounded_once(dtype, out_dtype, count, accelerate):
    inputs = drifting_bits(dtype, count=count, items=150)
    row = dict.fromkeys(range(count), 1.0)
    (found,), _ = run_kernel(inputs, [row], dtype=dtype, out_dtype=out_dtype, plain=True, accelerate=accelerate)
    expected = exact_row(inputs, [Fraction(1, count)] * count, dtype=dtype, out_dtype=out_dtype)
    if out_dtype == "F64":  # the accumulator itself: a mean there is good to its last bit, not beyond
        assert np.abs(found.view(np.int64) - expected.view(np.int64)).max() <= 1
    else:
        np.testing.assert_array_equal(found, expected)


@both_kernels
@pytest.mark.parametrize(("dtype", "out_dtype"), [pair for pair in PAIRS if "F64" not in pair])
def test_a_weighted_row_is_the_exact_sum_rounded_once(dtype, out_dtype, accelerate):
    inputs = drifting_bits(dtype, count=5, items=300)
    row = dict(enumerate(ODD_WEIGHTS))
    (found,), finite = run_kernel(inputs, [row], dtype=dtype, out_dtype=out_dtype, plain=False, accelerate=accelerate)
    assert finite
    expected = exact_row(inputs, [Fraction(w) for w in ODD_WEIGHTS], dtype=dtype, out_dtype=out_dtype)
    np.testing.assert_array_equal(found, expected)


@both_kernels
@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_weights_of_few_digits_may_turn_a_tie_but_are_never_off_by_more_than_half_a_step(dtype, accelerate):
    """0.3 is not 0.3 in binary: what would be a tie lies a hair (2^-53) beside it, more than fp64 sums can keep."""
    inputs = drifting_bits(dtype, count=5, items=1000)
    row = dict(enumerate(ROUND_WEIGHTS))
    (found,), _ = run_kernel(inputs, [row], dtype=dtype, out_dtype=dtype, plain=False, accelerate=accelerate)
    for column, bits in zip(inputs.T, found, strict=True):
        number = sum(Fraction(w) * fraction_of(x, dtype) for w, x in zip(ROUND_WEIGHTS, column, strict=True))
        size = abs(fraction_of(bits, dtype))
        step = max(fraction_of((bits & 0x7FFF) + 1, dtype) - size, abs(size - fraction_of((bits & 0x7FFF) - 1, dtype)))
        assert abs(fraction_of(bits, dtype) - number) <= step / 2 * (1 + Fraction(1, 2**40))


@both_kernels
@pytest.mark.parametrize("out_dtype", FLOATS)
def test_fp64_ingredients_are_summed_in_fp64(out_dtype, accelerate):
    inputs = drifting_bits("F64", count=5, items=500)
    row = dict(enumerate(ODD_WEIGHTS))
    (found,), _ = run_kernel(inputs, [row], dtype="F64", out_dtype=out_dtype, plain=False, accelerate=accelerate)
    total = np.zeros(500)
    for weight, numbers in zip(ODD_WEIGHTS, inputs.view(np.float64), strict=True):
        total = total + weight * numbers
    if out_dtype == "F64":
        np.testing.assert_array_equal(found, total.view(np.uint64))
    else:
        expected = [nearest(Fraction(number), out_dtype) for number in total.tolist()]
        np.testing.assert_array_equal(found, expected)


@both_kernels
def test_fp16_means_agree_with_numpys_float16(accelerate):
    inputs = drifting_bits("F16", count=9, items=4000)
    (found,), _ = run_kernel(
        inputs, [dict.fromkeys(range(9), 1.0)], dtype="F16", out_dtype="F16", plain=True, accelerate=accelerate
    )
    total = np.zeros(4000, np.float32)
    for numbers in inputs.view(np.float16):
        total += numbers.astype(np.float32)
    np.testing.assert_array_equal(found, (total / np.float32(9)).astype(np.float16).view(np.uint16))


@both_kernels
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_every_16_bit_number_alone_comes_back_as_it_is_or_as_torch_converts_it(dtype, plain, accelerate):
    patterns = np.arange(2**16, dtype=np.uint16)
    numbers = torch.from_numpy(patterns.view(np.int16)).view(TORCH[dtype])
    for out_dtype in FLOATS:
        (found,), _ = run_kernel(
            patterns[None], [{0: 1.0}], dtype=dtype, out_dtype=out_dtype, plain=plain, accelerate=accelerate
        )
        expected = bits_of(numbers.to(TORCH[out_dtype]))
        finite = (expected & infinity(out_dtype)) != infinity(out_dtype)
        np.testing.assert_array_equal(found[finite], expected[finite])


@both_kernels
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
def test_nan_and_inf_in_any_ingredient_are_noticed_whatever_their_bits(dtype, out_dtype, plain, accelerate):
    top, sign = infinity(dtype), 1 << (WIDTH[dtype] - 1)
    for poison in (top, top | 1, top | (top >> 1) | 1, sign - 1, top | sign, 2 * sign - 1):  # inf, NaNs, all ones
        for m in range(3):
            inputs = drifting_bits(dtype, count=3, items=40)
            row = dict(enumerate([0.5, 0.25, 0.25]))
            call = {"dtype": dtype, "out_dtype": out_dtype, "plain": plain, "accelerate": accelerate}
            assert run_kernel(inputs, [row], **call)[1]
            inputs[m, 17] = poison
            assert not run_kernel(inputs, [row], **call)[1], f"{poison:#x} in ingredient {m}"


@both_kernels
@pytest.mark.parametrize(
    ("dtype", "out_dtype", "number", "weights"),
    [("F32", "F16", 65520.0, [0.5, 0.5]), ("F32", "BF16", 3.4e38, [0.5, 0.5]), ("BF16", "BF16", 3e38, [1.5, -0.25])],
)
def test_a_result_too_large_for_its_dtype_is_noticed(dtype, out_dtype, number, weights, accelerate):
    inputs = np.stack([bits_of(torch.full((8,), number, dtype=torch.float64).to(TORCH[dtype]))] * 2)
    call = {"dtype": dtype, "out_dtype": out_dtype, "plain": False, "accelerate": accelerate}
    assert not run_kernel(inputs, [dict(enumerate(weights))], **call)[1]
    assert run_kernel(inputs, [{0: 0.5, 1: -0.25}], **call)[1]


@both_kernels
def test_a_tie_goes_to_even_and_a_hair_decides_it_even_one_that_fp32_would_lose(accelerate):
    """1 + 2^-8 lies between two bf16 numbers. With 2^-40 added it is nearer the upper, which fp32 cannot see."""
    inputs = bits_of(torch.tensor([[1.0], [2.0**-7], [2.0**-40]]).to(torch.bfloat16))
    call = {"dtype": "BF16", "out_dtype": "BF16", "plain": False, "accelerate": accelerate}
    (tie, above, below), _ = run_kernel(
        inputs, [{0: 1.0, 1: 0.5}, {0: 1.0, 1: 0.5, 2: 1.0}, {0: 1.0, 1: 1.5, 2: -1.0}], **call
    )
    assert tie == [0x3F80]
    assert above == [0x3F81]
    assert below == [0x3F81]  # 1 + 3 * 2^-8 less a hair: the tie would go to 0x3F82
