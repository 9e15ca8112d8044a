"""A p value over pairs of branches: what pairs share is in the permutations too."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from trajsoup.core.mantel import mantel


def pairs_of(n):
    return list(itertools.combinations("ABCDEFGHIJKL"[:n], 2))


def shared(rng, pairs):
    """A quantity of pairs to which both branches bring their own part."""
    own = {name: rng.standard_normal() for pair in pairs for name in pair}
    return np.array([own[a] + own[b] + 0.3 * rng.standard_normal() for a, b in pairs])


@pytest.mark.parametrize("branches", [5, 6])
def test_false_alarms_are_nominal_where_independent_pairs_would_raise_three_times_as_many(branches):
    rng = np.random.default_rng(branches)
    pairs = pairs_of(branches)
    drawn = [(shared(rng, pairs), shared(rng, pairs)) for _ in range(400)]
    ours = np.mean([mantel(pairs, x, y) <= 0.05 for x, y in drawn])
    independent = np.mean([stats.spearmanr(x, y).pvalue <= 0.05 for x, y in drawn])
    assert 0.02 <= ours <= 0.08
    assert independent > 0.12


def test_three_branches_cannot_be_certain():
    assert mantel(pairs_of(3), np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])) == pytest.approx(2 / 6)


def test_a_plain_relation_is_found_and_permutations_of_many_branches_are_drawn_from_a_seed():
    pairs = pairs_of(9)
    x = shared(np.random.default_rng(0), pairs)
    assert mantel(pairs, x, -x) < 0.001
    noise = shared(np.random.default_rng(1), pairs)
    assert mantel(pairs, x, noise) == mantel(pairs, x, noise)


def test_pairs_that_were_not_measured_leave_no_p_value():
    x = np.arange(5.0)
    assert mantel(pairs_of(4)[:5], x, x) is None
