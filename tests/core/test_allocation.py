"""The number of checkpoints and the fixed budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.core.allocation import CheckpointSurrogate, HorizonTerms, best_allocation, fixed_budget_loss, k_increment
from trajsoup.core.theory import hierarchical_loss
from trajsoup.errors import TheoryError


def surrogate(**changes) -> CheckpointSurrogate:
    return CheckpointSurrogate(
        **({"bias": 0.1, "gamma": 0.01, "v_intra": 4.0, "v_inter": 1.0, "n_branches": 2} | changes)
    )


def test_k_increment_is_the_difference_of_two_hierarchical_losses():
    now = hierarchical_loss(bias=0.2, v_intra=3.0, v_inter=1.0, n_branches=4, k_eff=2.0)
    then = hierarchical_loss(bias=0.25, v_intra=3.0, v_inter=1.0, n_branches=4, k_eff=2.5)
    found = k_increment(bias=(0.2, 0.25), k_eff=(2.0, 2.5), v_intra=3.0, n_branches=4)
    assert found == pytest.approx(then.total - now.total)
    assert k_increment(bias=(0.2, 0.2), k_eff=(2.0, 2.0), v_intra=3.0, n_branches=4) == 0


@given(st.floats(1e-6, 10), st.floats(1e-6, 100), st.integers(1, 50))
def test_the_continuous_minimiser_solves_its_equation(gamma, v_intra, n):
    k = surrogate(gamma=gamma, v_intra=v_intra, n_branches=n).best_k()
    assert k > 1
    assert 2 * gamma * k**2 * (k - 1) == pytest.approx(v_intra / n, rel=1e-5, abs=1e-9)


def test_the_minimiser_falls_as_branches_are_added():
    found = [surrogate(n_branches=n).best_k() for n in range(1, 9)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


def test_the_integer_optimum_is_a_neighbour_of_the_continuous_one_or_the_best_grid_point():
    phi = surrogate()
    k = phi.best_k()
    assert phi.best_count(range(1, 30)) in (math.floor(k), math.ceil(k))
    assert phi.best_count(range(1, 3)) == 2
    sparse = (1, 2, 16, 32)
    assert phi.loss(phi.best_count(sparse)) == min(phi.loss(k) for k in sparse)


def test_the_surrogate_in_its_limit_cases():
    assert surrogate(v_intra=0.0).best_k() == 1
    assert surrogate(gamma=0.0).best_k() == math.inf
    assert surrogate(gamma=0.0).best_count(range(1, 9)) == 8
    assert surrogate().loss(1) == pytest.approx(0.1 + (4 + 1) / 2)
    with pytest.raises(TheoryError, match="gamma >= 0"):
        surrogate(gamma=-1.0)
    with pytest.raises(TheoryError, match="must be positive"):
        surrogate().best_count([])


def test_a_fixed_budget_is_the_hierarchical_loss_at_the_shorter_horizon():
    terms = HorizonTerms(
        bias=lambda t, k: 10 / t + 0.01 * k, v_intra=lambda t: 2.0, v_inter=lambda t: 1.0, k_eff=lambda t, k: float(k)
    )
    found = fixed_budget_loss(100, n_branches=4, k=2, terms=terms)
    assert found == hierarchical_loss(bias=10 / 25 + 0.02, v_intra=2.0, v_inter=1.0, n_branches=4, k_eff=2.0)
    n, k, loss = best_allocation(100, feasible=[(n, k) for n in (1, 2, 4, 8) for k in (1, 2, 4)], terms=terms)
    every = {
        (a, b): fixed_budget_loss(100, n_branches=a, k=b, terms=terms).total for a in (1, 2, 4, 8) for b in (1, 2, 4)
    }
    assert (n, k) == min(every, key=every.get)
    assert loss.total == min(every.values())
    with pytest.raises(TheoryError, match="no feasible"):
        best_allocation(100, feasible=[], terms=terms)


def test_saturated_training_favours_branches_and_early_training_one_long_run():
    def choose(bias) -> int:
        terms = HorizonTerms(bias=bias, v_intra=lambda t: 1.0, v_inter=lambda t: 1.0, k_eff=lambda t, k: 1.0)
        return best_allocation(100, feasible=[(n, 1) for n in range(1, 6)], terms=terms)[0]

    assert choose(lambda t, k: 0.1) == 5
    assert choose(lambda t, k: float(np.exp(4 - t / 25))) == 1
