"""Effective counts and optimal weights, against their definition, Monte Carlo and limit cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.core.covariance import (
    effective_count,
    exchangeable_count,
    exchangeable_variance,
    intra_variance,
    inverse_variance_weights,
    uniform_is_optimal,
)
from trajsoup.errors import TheoryError


def test_effective_count_is_a_ratio_of_variances_by_monte_carlo():
    rng = np.random.default_rng(0)
    k = 5
    c = 0.7 ** np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    eps = rng.standard_normal((200_000, k)) @ np.linalg.cholesky(c).T
    ratio = eps[:, 0].var() / eps.mean(axis=1).var()
    assert effective_count(c) == pytest.approx(ratio, rel=0.03)
    assert effective_count(c, k=1) == 1


@pytest.mark.parametrize("k", [1, 2, 7])
def test_effective_count_in_its_limit_cases(k):
    assert effective_count(np.eye(k)) == pytest.approx(k)
    assert effective_count(np.ones((k, k))) == pytest.approx(1)
    assert exchangeable_count(k, v_intra=2.0, covariance=0.0) == pytest.approx(k)
    assert exchangeable_count(k, v_intra=2.0, covariance=2.0) == pytest.approx(1)


def test_negative_covariances_push_the_effective_count_above_k_and_to_infinity():
    assert effective_count([[1.0, -0.5], [-0.5, 1.0]]) == pytest.approx(4)
    assert effective_count([[1.0, -1.0], [-1.0, 1.0]]) == math.inf
    assert exchangeable_count(2, v_intra=1.0, covariance=-1.0) == math.inf
    assert intra_variance([[1.0, -1.0], [-1.0, 1.0]]) == 0


@given(st.integers(1, 8), st.floats(0, 1))
def test_the_exchangeable_count_is_the_count_of_its_matrix_and_lies_between_1_and_k(k, c):
    matrix = (1 - c) * np.eye(k) + c
    found = exchangeable_count(k, v_intra=1.0, covariance=c)
    assert found == pytest.approx(effective_count(matrix))
    assert 1 - 1e-9 <= found <= k + 1e-9


def test_impossible_covariances_are_refused():
    with pytest.raises(TheoryError, match="impossible among 3 ranks"):
        exchangeable_count(3, v_intra=1.0, covariance=-0.6)
    with pytest.raises(TheoryError, match="V_intra is 0"):
        exchangeable_count(3, v_intra=0.0, covariance=0.0)
    with pytest.raises(TheoryError, match="not negative"):
        effective_count([[-1.0]])


def test_inverse_variance_weights_beat_every_other_weights_on_a_grid():
    v = np.array([1.0, 2.0, 4.0])
    best = inverse_variance_weights(v)
    assert best == pytest.approx(np.array([4, 2, 1]) / 7)
    least = float(v @ best**2)
    assert least == pytest.approx(1 / (1 / v).sum())
    for a, b in itertools.product(np.linspace(0, 1, 21), repeat=2):
        if a + b <= 1:
            assert float(v @ np.array([a, b, 1 - a - b]) ** 2) >= least


def test_inverse_variance_weights_in_their_limit_cases():
    assert inverse_variance_weights([3.0]) == pytest.approx([1.0])
    assert inverse_variance_weights([2.0, 2.0]) == pytest.approx([0.5, 0.5])
    assert inverse_variance_weights([0.0, 1.0, 0.0]) == pytest.approx([0.5, 0.0, 0.5])
    with pytest.raises(TheoryError, match="finite and not negative"):
        inverse_variance_weights([1.0, -1.0])


def test_uniform_weights_are_optimal_exactly_when_row_sums_agree():
    rng = np.random.default_rng(1)
    circulant = sum(np.roll(np.eye(4), i, 1) * value for i, value in enumerate([2.0, 0.5, 0.1, 0.5]))
    assert uniform_is_optimal(circulant)
    base = np.full(4, 0.25) @ circulant @ np.full(4, 0.25)
    for _ in range(200):
        a = rng.dirichlet(np.ones(4))
        assert a @ circulant @ a >= base - 1e-12
    uneven = np.diag([1.0, 1.0, 1.0, 2.0])
    assert not uniform_is_optimal(uneven)
    better = inverse_variance_weights(np.diag(uneven))
    assert better @ uneven @ better < np.full(4, 0.25) @ uneven @ np.full(4, 0.25)
    assert uniform_is_optimal(np.zeros((3, 3)))
    assert uniform_is_optimal([[2.0]])


def test_exchangeable_variance_is_the_quadratic_form():
    alpha = np.array([0.5, 0.3, 0.2])
    g = (2.0 - 0.5) * np.eye(3) + 0.5
    assert exchangeable_variance(alpha, variance=2.0, covariance=0.5) == pytest.approx(alpha @ g @ alpha)
    assert exchangeable_variance(alpha, variance=2.0, covariance=2.0) == pytest.approx(2.0)
