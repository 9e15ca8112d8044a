"""The identities of the theory: against their definition, against Monte Carlo, and in their limit cases."""

from __future__ import annotations

import numpy as np
import pytest

from trajsoup.core.theory import (
    averaging_methods,
    branch_covariance,
    branch_loss,
    correlated_floor,
    general_loss,
    half_norm,
    half_trace,
    hierarchical_loss,
    local_loss,
    two_level_variance,
    weight_penalty,
    weighted_loss,
)
from trajsoup.errors import TheoryError

D = 4
RNG = np.random.default_rng(0)


def spd(rank: int = D) -> np.ndarray:
    a = RNG.standard_normal((D, rank))
    return a @ a.T


H = {"regular": spd(), "singular": spd(2)}
OPTIMUM = RNG.standard_normal(D)


def losses(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    d = x - OPTIMUM
    return 0.5 * np.einsum("...i,ij,...j->...", d, h, d)


def draws(covariance: np.ndarray, *shape: int, seed: int = 1) -> np.ndarray:
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(covariance)))
    return np.random.default_rng(seed).standard_normal((*shape, len(covariance))) @ root.T


def test_half_trace_uses_the_product_not_the_entries():
    a, b = RNG.standard_normal((D, D)), spd()
    assert half_trace(a, hessian=b) == pytest.approx(np.trace(b @ a) / 2)


@pytest.mark.parametrize("kind", H)
def test_local_loss_is_the_expected_loss_of_a_finite_population(kind):
    """The identity holds for any distribution, so also exactly for the empirical one of a few points."""
    points = RNG.standard_normal((7, D))
    mean = points.mean(axis=0)
    covariance = (points - mean).T @ (points - mean) / 7
    found = local_loss(mean, optimum=OPTIMUM, hessian=H[kind], covariance=covariance)
    assert found.total == pytest.approx(losses(points, H[kind]).mean())
    assert found.bias >= 0
    assert found.inter >= 0


@pytest.mark.parametrize("kind", H)
def test_local_loss_by_monte_carlo(kind):
    covariance, mean = spd(), RNG.standard_normal(D)
    sample = losses(mean + draws(covariance, 200_000), H[kind])
    found = local_loss(mean, optimum=OPTIMUM, hessian=H[kind], covariance=covariance)
    assert sample.mean() == pytest.approx(found.total, abs=5 * sample.std() / np.sqrt(len(sample)))


def test_a_model_without_variance_at_the_optimum_has_no_excess_loss():
    found = local_loss(OPTIMUM, optimum=OPTIMUM, hessian=H["regular"], covariance=np.zeros((D, D)))
    assert found.total == 0
    kernel = np.linalg.svd(H["singular"])[2][-1]
    assert half_norm(kernel, hessian=H["singular"]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", H)
def test_branch_and_hierarchical_loss_by_monte_carlo_of_the_random_effects_model(kind):
    """theta_nj = mean + u_n + eps_nj with correlated eps: anchors, then a soup of N of them."""
    n, k, trials = 3, 4, 60_000
    mean, cov_u, cov_e, rho = OPTIMUM + 0.3, 0.3 * spd(), 0.5 * spd(), 0.4
    u = draws(cov_u, trials, n, seed=2)
    shared, own = draws(cov_e, trials, n, seed=3), draws(cov_e, trials, n, k, seed=4)
    theta = mean + u[:, :, None] + np.sqrt(rho) * shared[:, :, None] + np.sqrt(1 - rho) * own
    anchors = theta.mean(axis=2)
    rest = cov_e * (rho + (1 - rho) / k)
    one = branch_loss(mean, optimum=OPTIMUM, hessian=H[kind], conditional=rest, persistent=cov_u)
    sample = losses(anchors[:, 0], H[kind])
    assert sample.mean() == pytest.approx(one.total, abs=5 * sample.std() / np.sqrt(trials))
    v_intra = half_trace(cov_e, hessian=H[kind])
    soup = hierarchical_loss(bias=one.bias, v_intra=v_intra, v_inter=one.inter, n_branches=n, k_eff=v_intra / one.intra)
    sample = losses(anchors.mean(axis=1), H[kind])
    assert sample.mean() == pytest.approx(soup.total, abs=5 * sample.std() / np.sqrt(trials))


def test_hierarchical_loss_in_its_limit_cases():
    one = hierarchical_loss(bias=1.0, v_intra=2.0, v_inter=3.0, n_branches=1, k_eff=1)
    assert (one.bias, one.intra, one.inter, one.total) == (1, 2, 3, 6)
    many = hierarchical_loss(bias=1.0, v_intra=2.0, v_inter=3.0, n_branches=10**9, k_eff=float("inf"))
    assert many.total == pytest.approx(1.0)
    with pytest.raises(TheoryError, match="n_branches is 0"):
        hierarchical_loss(bias=0, v_intra=1, v_inter=1, n_branches=0, k_eff=1)
    with pytest.raises(TheoryError, match="K_eff is 0"):
        hierarchical_loss(bias=0, v_intra=1, v_inter=1, n_branches=1, k_eff=0)


def test_the_table_of_methods_has_the_papers_four_rows():
    biases = {"rank-1": 0.1, "intra": 0.2, "inter": 0.3, "trajectory-soup": 0.4}
    table = averaging_methods(biases=biases, v_intra=6.0, v_inter=3.0, n_branches=3, k_eff=2.0)
    totals = {name: row.total for name, row in table.items()}
    assert totals == pytest.approx(
        {"rank-1": 0.1 + 6 + 3, "intra": 0.2 + 3 + 3, "inter": 0.3 + 2 + 1, "trajectory-soup": 0.4 + 1 + 1}
    )


def test_general_loss_by_monte_carlo_of_correlated_branches():
    """Branches share a common shift, so their cross-covariance does not vanish and leaves a floor."""
    n, trials = 3, 100_000
    h, common, own = H["regular"], 0.4 * spd(), 0.6 * spd()
    anchors = OPTIMUM + draws(common, trials, 1, seed=5) + draws(own, trials, n, seed=6)
    blocks = [[common + (own if i == j else 0) for j in range(n)] for i in range(n)]
    g = branch_covariance(blocks, hessian=h)
    sample = losses(anchors.mean(axis=1), h)
    assert sample.mean() == pytest.approx(general_loss(bias=0, covariance=g), abs=5 * sample.std() / np.sqrt(trials))
    alpha = np.array([0.5, 0.3, 0.2])
    sample = losses(np.einsum("n,tnd->td", alpha, anchors), h)
    predicted = weighted_loss(alpha, bias=0, covariance=g)
    assert sample.mean() == pytest.approx(predicted, abs=5 * sample.std() / np.sqrt(trials))
    assert correlated_floor(g) == pytest.approx(half_trace(common, hessian=h))


def test_general_loss_contains_the_hierarchical_one_and_perfect_correlation():
    independent = 5.0 * np.eye(4)
    assert general_loss(bias=1, covariance=independent) == pytest.approx(
        hierarchical_loss(bias=1, v_intra=2, v_inter=3, n_branches=4, k_eff=1).total
    )
    same = np.full((4, 4), 5.0)
    assert general_loss(bias=1, covariance=same) == 6
    assert correlated_floor(same) == 5
    assert correlated_floor([[5.0]]) == 0
    assert general_loss(bias=0, covariance=[[1, -1], [-1, 1]]) == 0


def test_weights_off_the_simplex_are_refused():
    with pytest.raises(TheoryError, match="sum to one"):
        weighted_loss([0.5, 0.6], bias=0, covariance=np.eye(2))
    with pytest.raises(TheoryError, match="nonnegative"):
        weighted_loss([1.5, -0.5], bias=0, covariance=np.eye(2))


def exchangeable(k: int, v: float, c: float) -> np.ndarray:
    return (v - c) * np.eye(k) + c


def test_weight_penalties_add_up_to_the_two_level_variance():
    rng = np.random.default_rng(7)
    residuals = [
        exchangeable(4, 2.0, 0.5),
        np.roll(np.eye(4), 1, 0) * 0.25 + np.roll(np.eye(4), -1, 0) * 0.25 + 3 * np.eye(4),
    ]
    residuals[1] *= residuals[0][0].sum() / residuals[1][0].sum()  # the corollary wants one row sum for all branches
    alpha, w = rng.dirichlet(np.ones(2)), [rng.dirichlet(np.ones(4)) for _ in range(2)]
    variance = two_level_variance(alpha, rank_weights=w, residuals=residuals, v_inter=0.7)
    found = weight_penalty(alpha, rank_weights=w, residuals=residuals, v_inter=0.7)
    assert found.total == pytest.approx(variance)
    assert found.branches > 0
    assert found.ranks > 0
    uniform = [np.full(4, 0.25)] * 2
    least = weight_penalty([0.5, 0.5], rank_weights=uniform, residuals=residuals, v_inter=0.7)
    assert least.total == least.minimum == pytest.approx((2.0 / 4 + 0.5 * 3 / 4 + 0.7) / 2)


def test_two_level_variance_by_monte_carlo():
    n, k, trials = 2, 3, 100_000
    h, cov_u = H["regular"], 0.2 * spd()
    cov_e = [spd(), spd()]
    ranks = [exchangeable(k, 1.0, 0.3), np.array([[1.0, 0.6, 0.1], [0.6, 1.0, -0.2], [0.1, -0.2, 1.0]])]
    eps = [
        np.einsum("jl,tld->tjd", np.linalg.cholesky(r), draws(c, trials, k, seed=8 + i))
        for i, (r, c) in enumerate(zip(ranks, cov_e, strict=True))
    ]
    alpha, w = np.array([0.7, 0.3]), [np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])]
    u = draws(cov_u, trials, n, seed=20)
    model = OPTIMUM + sum(alpha[i] * (u[:, i] + np.einsum("j,tjd->td", w[i], eps[i])) for i in range(n))
    residuals = [r * half_trace(c, hessian=h) for r, c in zip(ranks, cov_e, strict=True)]
    predicted = two_level_variance(alpha, rank_weights=w, residuals=residuals, v_inter=half_trace(cov_u, hessian=h))
    sample = losses(model, h)
    assert sample.mean() == pytest.approx(predicted, abs=5 * sample.std() / np.sqrt(trials))


def test_weight_penalty_refuses_covariances_without_equal_row_sums():
    with pytest.raises(TheoryError, match="row sums from 1 to 2"):
        weight_penalty([1.0], rank_weights=[[0.5, 0.5]], residuals=[np.diag([1.0, 2.0])], v_inter=0)
