import math

import pytest

from trajsoup.core.coefficients import Coefficients, coefficients

FORMULA = {
    Coefficients.EQUAL: lambda j: 1.0,
    Coefficients.SQRT: lambda j: math.sqrt(j),
    Coefficients.RANK: lambda j: j,
    Coefficients.RSQRT: lambda j: 1 / math.sqrt(j),
}


@pytest.mark.parametrize("scheme", Coefficients)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 50])
def test_coefficients_follow_the_papers_formula_and_sum_to_one(scheme, k):
    raw = [FORMULA[scheme](j) for j in range(1, k + 1)]
    weights = coefficients(scheme, k)
    assert weights == pytest.approx([value / sum(raw) for value in raw], rel=1e-14)
    assert math.fsum(weights) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("scheme", Coefficients)
def test_one_checkpoint_gets_all_the_weight(scheme):
    assert coefficients(scheme, 1) == (1.0,)


def test_equal_coefficients_are_equal_to_the_last_bit():
    assert all(len(set(coefficients(Coefficients.EQUAL, k))) == 1 for k in range(1, 100))


def test_only_rsqrt_favours_the_best_rank():
    best_first = {scheme: coefficients(scheme, 4)[0] > coefficients(scheme, 4)[-1] for scheme in Coefficients}
    assert [scheme for scheme, favours in best_first.items() if favours] == [Coefficients.RSQRT]
    rank, sqrt = coefficients(Coefficients.RANK, 4), coefficients(Coefficients.SQRT, 4)
    assert rank[-1] > sqrt[-1] > 0.25
