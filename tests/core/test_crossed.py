"""Intervals over seeds that share their documents, and Holm's family: coverage is simulated, not assumed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from trajsoup.core.crossed import crossed_interval, holm
from trajsoup.core.statistics import spread_over_seeds
from trajsoup.errors import ScoreError

DOCUMENTS = 400
CASES = {  # variance of the mean of one seed that seeds, documents and both together bring
    "documents only": (0.0, 1.0, 0.0),
    "documents, and seeds with documents": (0.0, 1.0, 1.0),
    "seeds only": (1.0, 0.0, 0.0),
    "seeds, and seeds with documents": (1.0, 0.0, 0.3),
    "all three": (1.0, 1.0, 1.0),
    "seeds above all": (10.0, 1.0, 1.0),
}


def drawn(rng, seeds, case):
    """Loss-sum differences whose truth is zero, on documents of skewed sizes: Kish's n is about 220 of 400."""
    sizes = np.exp(rng.normal(0, 0.8, DOCUMENTS))
    effective = sizes.sum() ** 2 / np.sum(sizes**2)
    seed, document, together = (math.sqrt(v) for v in CASES[case])
    values = (
        seed * rng.standard_normal((seeds, 1))
        + document * math.sqrt(effective) * rng.standard_t(5, DOCUMENTS) / math.sqrt(5 / 3)
        + together * math.sqrt(effective) * rng.standard_normal((seeds, DOCUMENTS))
    )
    return values * sizes, sizes


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_it_covers_whichever_of_seeds_and_documents_vary(seeds, case):
    rng = np.random.default_rng(seeds)
    found = [crossed_interval([d], weights=[w]) for d, w in (drawn(rng, seeds, case) for _ in range(300))]
    covered = np.mean([c.low <= 0 <= c.high for c in found])
    assert 0.92 <= covered <= 0.99, covered  # 94 to 98 %, and two standard errors of 300 draws
    assert np.mean([c.p <= 0.05 for c in found]) == pytest.approx(1 - covered)


def test_seeds_alone_do_not_cover_what_all_seeds_share():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        differences, sizes = drawn(rng, 5, "documents, and seeds with documents")
        spread = spread_over_seeds((differences.sum(axis=1) / sizes.sum()).tolist())
        covered += spread.low <= 0 <= spread.high
    assert covered / 300 < 0.9


def test_without_shared_documents_it_is_the_t_interval_of_the_seeds():
    values = np.array([0.1, 0.4, 0.3])
    found = crossed_interval([np.repeat(values[:, None], 40, axis=1)])
    t = stats.ttest_1samp(values, 0)
    low, high = t.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.p == pytest.approx(t.pvalue)
    assert (found.documents_error, found.together_error) == (0, 0)


def test_with_equal_seeds_it_is_the_t_interval_of_the_documents():
    values = np.random.default_rng(1).standard_normal(60)
    found = crossed_interval([np.tile(values, (4, 1))])
    t = stats.ttest_1samp(values, 0)
    assert (found.low, found.high) == tuple(map(pytest.approx, t.confidence_interval(0.95)))
    assert found.p == pytest.approx(t.pvalue)
    assert found.seeds_error == 0


def test_strata_weigh_the_same_whatever_their_size():
    one, two = np.zeros((2, 10)), np.ones((2, 1000))
    assert crossed_interval([one, two]).difference == 0.5


def test_a_diverged_model_is_no_claim_and_no_difference_is_none():
    found = crossed_interval([np.full((2, 5), np.nan)])
    assert all(math.isnan(v) for v in (found.low, found.high, found.p))
    same = crossed_interval([np.zeros((3, 5))])
    assert (same.low, same.high, same.p) == (0, 0, 1)
    with pytest.raises(ScoreError, match="needs two"):
        crossed_interval([np.zeros((1, 5))])


def test_holm_by_hand():
    """0.01 x 4, then 0.02 x 3 = 0.06, then 0.03 x 2 = 0.06, and 0.04 x 1 may not fall below it."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx((0.06, 0.04, 0.06, 0.06))
    assert holm([0.4, 0.9]) == pytest.approx((0.8, 0.9))
    assert holm([]) == ()


def test_holm_keeps_the_family_at_its_level():
    rng = np.random.default_rng(3)
    wrong = sum(min(holm(rng.uniform(size=8).tolist())) <= 0.05 for _ in range(4000))
    assert 0.04 < wrong / 4000 < 0.06


def test_what_a_document_moves_in_two_ratios_is_not_averaged_away():
    """Two configurations made of the same documents know no more than one, and the interval must say so."""
    rng = np.random.default_rng(5)
    covered = {True: 0, False: 0}
    for _ in range(300):
        document = rng.normal(size=60)
        both = np.broadcast_to(document, (3, 2, 60)) + 0.1 * rng.normal(size=(3, 2, 60))
        together = crossed_interval([both])
        apart = crossed_interval([both[:, 0], both[:, 1]])
        assert together.difference == pytest.approx(apart.difference)
        for shared, found in ((True, together), (False, apart)):
            covered[shared] += found.low <= 0 <= found.high
    assert covered[True] >= 0.92 * 300
    assert covered[False] < 0.88 * 300
