import math

import pytest

from tests.core.test_selection import pool_of
from trajsoup.core.coefficients import WEIGHTINGS, coefficients, weighting
from trajsoup.errors import SelectionError

FORMULA = {
    "equal": lambda j: 1.0,
    "1sqrt": lambda j: math.sqrt(j),
    "rank": lambda j: j,
    "rsqrt": lambda j: 1 / math.sqrt(j),
}


def ordered(k):
    """K candidates, best first."""
    return pool_of(*[2 + j / 100 for j in range(k)]).candidates


def test_the_table_holds_the_papers_four():
    assert [w.name for w in WEIGHTINGS.values() if w.reference == "app:merge-coefficients"] == list(FORMULA)


@pytest.mark.parametrize("scheme", FORMULA)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 50])
def test_coefficients_follow_the_papers_formula_and_sum_to_one(scheme, k):
    raw = [FORMULA[scheme](j) for j in range(1, k + 1)]
    weights = coefficients(scheme, ordered(k))
    assert weights == pytest.approx([value / sum(raw) for value in raw], rel=1e-14)
    assert math.fsum(weights) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("scheme", FORMULA)
def test_one_checkpoint_gets_all_the_weight(scheme):
    assert coefficients(scheme, ordered(1)) == (1.0,)


def test_equal_coefficients_are_equal_to_the_last_bit():
    assert all(len(set(coefficients("equal", ordered(k)))) == 1 for k in range(1, 100))


def test_only_rsqrt_favours_the_best_rank():
    best_first = {
        scheme: coefficients(scheme, ordered(4))[0] > coefficients(scheme, ordered(4))[-1] for scheme in FORMULA
    }
    assert [scheme for scheme, favours in best_first.items() if favours] == ["rsqrt"]
    rank, sqrt = coefficients("rank", ordered(4)), coefficients("1sqrt", ordered(4))
    assert rank[-1] > sqrt[-1] > 0.25


def test_a_weighting_sees_tokens_and_scores_and_is_scaled_to_one():
    @weighting(name="by-tokens", says="tokens", reference="a test", swept=False)
    def by_tokens(candidates):
        return [c.tokens for c in candidates]

    try:
        assert coefficients("by-tokens", ordered(3)) == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    finally:
        WEIGHTINGS.remove("by-tokens")


def test_a_name_is_taken_once_and_an_unknown_one_lists_them_all():
    with pytest.raises(SelectionError, match=r"there is a weighting 'equal' already"):
        weighting(name="equal", says="")(lambda candidates: [])
    with pytest.raises(SelectionError, match=r"no weighting 'linear': use equal, 1sqrt, rank, rsqrt"):
        coefficients("linear", ordered(2))


def test_weights_that_cannot_be_scaled_are_refused():
    weighting(name="nothing", says="0", swept=False)(lambda candidates: [0.0] * len(candidates))
    try:
        with pytest.raises(SelectionError, match=r"'nothing' gives weights that sum to 0"):
            coefficients("nothing", ordered(2))
    finally:
        WEIGHTINGS.remove("nothing")
