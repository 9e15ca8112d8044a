"""Predictions for soups that were left out: exact on a quadratic, found out on anything else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trajsoup.core.estimators import SoupLosses
from trajsoup.core.held_out import larger_soups, new_branches

H = np.diag([1.0, 2.0, 0.0, 0.5])  # singular: a flat direction


def soups_of(points: np.ndarray, *, cubic: float = 0.0, largest: int | None = None) -> SoupLosses:
    def loss(x: np.ndarray) -> float:
        return 2 + float(x @ H @ x) / 2 + cubic * float(np.sum(np.abs(x) ** 3))

    names = [f"EXP{i + 1}" for i in range(len(points))]
    found = {}
    for size in range(1, (largest or len(points)) + 1):
        for members in itertools.combinations(range(len(points)), size):
            found[frozenset(names[i] for i in members), 2] = loss(points[list(members)].mean(axis=0))
    return SoupLosses(soups=found)


def test_anchors_and_pairs_predict_larger_soups_of_a_quadratic_exactly():
    points = np.random.default_rng(0).standard_normal((5, 4))
    found = larger_soups(soups_of(points), ks=[2])
    assert found is not None
    assert found.agreement.soups == len({soup.branches for soup in found.soups}) == 10 + 5 + 1
    assert found.agreement.worst < 1e-12
    assert found.gain > 0.1
    assert found.share_of_gain == pytest.approx(0, abs=1e-10)


def test_a_loss_that_is_not_quadratic_leaves_an_error():
    points = np.random.default_rng(1).standard_normal((5, 4))
    found = larger_soups(soups_of(points, cubic=0.3), ks=[2])
    assert found is not None
    assert found.share_of_gain is not None
    assert 0.001 < found.share_of_gain < 1


def test_a_left_out_branch_is_predicted_exactly_where_all_pairs_are_equally_far_apart():
    corners = np.eye(4)  # of a simplex, in the metric of the identity
    found = {}
    for size in range(1, 5):
        for members in itertools.combinations(range(4), size):
            point = corners[list(members)].mean(axis=0)
            found[frozenset(f"EXP{i}" for i in members), 1] = float(point @ point) / 2
    held = new_branches(SoupLosses(soups=found), ks=[1])
    assert held is not None
    assert held.agreement.worst < 1e-12


def test_left_out_branches_of_a_quadratic_err_one_by_one_but_not_on_average():
    rng = np.random.default_rng(2)
    for _ in range(20):
        held = new_branches(soups_of(rng.standard_normal((4, 4))), ks=[2])
        assert held is not None
        assert held.agreement.mean_error == pytest.approx(0, abs=1e-12)
        assert held.agreement.root_mean_square > 1e-3


def test_identical_branches_gain_nothing_and_nothing_is_promised():
    found = larger_soups(soups_of(np.ones((3, 4))), ks=[2])
    assert found is not None
    assert found.agreement.worst == pytest.approx(0)
    assert found.gain == pytest.approx(0)


def test_too_few_branches_leave_nothing_to_predict():
    points = np.random.default_rng(3).standard_normal((2, 4))
    assert larger_soups(soups_of(points), ks=[2]) is None
    assert new_branches(soups_of(points), ks=[2]) is None
    assert larger_soups(soups_of(points), ks=[7]) is None
