"""The decisions of the theory against simulation: quadratic losses of a known, singular H, known covariances, many draws."""

from __future__ import annotations

import numpy as np
import pytest

from trajsoup.core.allocation import CheckpointSurrogate, HorizonTerms, fixed_budget_loss, k_increment
from trajsoup.core.covariance import exchangeable_variance, inverse_variance_weights, uniform_is_optimal
from trajsoup.core.theory import branch_loss, half_norm, half_trace, hierarchical_loss, local_loss, weighted_loss

H = np.diag([1.0, 2.0, 0.0])
DRAWS = 40_000
SHIFT = np.array([0.3, -0.1, 0.5])  # of the mean, from one rank to the next
INTRA, INTER = 0.6, 0.4  # standard deviations in every direction
V_INTRA, V_INTER = half_trace(INTRA**2 * np.eye(3), hessian=H), half_trace(INTER**2 * np.eye(3), hessian=H)
GAMMA = half_norm(SHIFT / 2, hessian=H)  # B(K) - B(1) = gamma (K - 1)^2, for the mean shift of K ranks is (K - 1) / 2


def losses(points: np.ndarray) -> np.ndarray:
    return np.einsum("ri,ij,rj->r", points, H, points) / 2


def soups(n: int, k: int, *, inter: float = INTER, seed: int = 0) -> np.ndarray:
    """Losses of drawn soups of N branches and K ranks, above the optimum."""
    rng = np.random.default_rng(seed)
    persistent = rng.standard_normal((DRAWS, n, 3)) * inter
    residual = rng.standard_normal((DRAWS, n, k, 3)) * INTRA
    ranks = np.arange(k)[:, None] * SHIFT
    return losses((persistent + (residual + ranks).mean(axis=2)).mean(axis=1))


def close(drawn: np.ndarray, expected: float) -> bool:
    return abs(drawn.mean() - expected) < 4 * drawn.std() / np.sqrt(len(drawn))


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("k", [1, 3])
def test_the_surrogate_and_the_k_increment(n, k):
    surrogate = CheckpointSurrogate(bias=0.0, gamma=GAMMA, v_intra=V_INTRA, v_inter=V_INTER, n_branches=n)
    here, next_ = soups(n, k), soups(n, k + 1, seed=1)
    assert close(here, surrogate.loss(k))
    biases = (GAMMA * (k - 1) ** 2, GAMMA * k**2)
    step = k_increment(bias=biases, k_eff=(k, k + 1), v_intra=V_INTRA, n_branches=n)
    assert close(next_ - here, step)


@pytest.mark.parametrize("n", [1, 3, 12])
def test_the_integer_optimum_is_the_one_that_simulation_finds(n):
    surrogate = CheckpointSurrogate(bias=0.0, gamma=GAMMA, v_intra=V_INTRA, v_inter=V_INTER, n_branches=n)
    drawn = {k: float(soups(n, k).mean()) for k in range(1, 6)}
    assert surrogate.best_count(range(1, 6)) == min(drawn, key=lambda k: drawn[k])


def test_a_k_increment_in_its_limit_cases():
    no_bias = k_increment(bias=(0.1, 0.1), k_eff=(2, 3), v_intra=1.0, n_branches=2)
    assert no_bias == pytest.approx((1 / 3 - 1 / 2) / 2)
    assert k_increment(bias=(0.1, 0.3), k_eff=(2, 2), v_intra=1.0, n_branches=2) == pytest.approx(0.2)  # correlated
    many = k_increment(bias=(0.1, 0.3), k_eff=(2, 3), v_intra=1.0, n_branches=10**9)
    assert many == pytest.approx(0.2)  # branches leave nothing for K to average


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_fixed_budget_shortens_the_branches(n):
    total = 8.0
    terms = HorizonTerms(
        bias=lambda t, k: GAMMA * (k - 1) ** 2,
        v_intra=lambda t: V_INTRA,
        v_inter=lambda t: half_trace(np.eye(3) / t, hessian=H),
        k_eff=lambda t, k: float(k),
    )
    drawn = soups(n, 2, inter=float(np.sqrt(n / total)))
    assert close(drawn, fixed_budget_loss(total, n_branches=n, k=2, terms=terms).total)


def test_inverse_variance_weights_lose_least():
    rng = np.random.default_rng(3)
    deviations = np.array([0.2, 0.5, 1.0])
    anchors = rng.standard_normal((DRAWS, 3, 3)) * deviations[None, :, None]
    variances = np.array([half_trace(s**2 * np.eye(3), hessian=H) for s in deviations])
    weights = inverse_variance_weights(variances)
    best = losses(np.einsum("n,rnd->rd", weights, anchors))
    assert close(best, 1 / np.sum(1 / variances))
    for other in (np.full(3, 1 / 3), np.array([1.0, 0, 0]), np.array([0.6, 0.3, 0.1])):
        assert losses(np.einsum("n,rnd->rd", other, anchors)).mean() > best.mean()


def test_exchangeable_branches_keep_a_floor():
    rng = np.random.default_rng(4)
    common, own = rng.standard_normal((DRAWS, 1, 3)) * 0.5, rng.standard_normal((DRAWS, 4, 3)) * 0.8
    floor = half_trace(0.25 * np.eye(3), hessian=H)
    variance = floor + half_trace(0.64 * np.eye(3), hessian=H)
    for weights in (np.full(4, 0.25), np.array([0.7, 0.1, 0.1, 0.1]), np.array([1.0, 0, 0, 0])):
        drawn = losses(np.einsum("n,rnd->rd", weights, common + own))
        assert close(drawn, exchangeable_variance(weights, variance=variance, covariance=floor))
    assert exchangeable_variance([0.5, 0.5], variance=1.0, covariance=1.0) == 1  # perfectly correlated
    assert exchangeable_variance([0.5, 0.5], variance=1.0, covariance=-1.0) == 0  # they cancel


def test_uniform_weights_lose_least_where_row_sums_agree_and_only_there():
    rng = np.random.default_rng(5)
    circulant = np.array([[1.0, 0.4, -0.2], [-0.2, 1.0, 0.4], [0.4, -0.2, 1.0]])
    circulant = (circulant + circulant.T) / 2
    uneven = np.diag([1.0, 1.0, 4.0])
    for covariance, optimal in ((circulant, True), (uneven, False)):
        root = np.linalg.cholesky(covariance)
        anchors = np.einsum("nm,rmd->rnd", root, rng.standard_normal((DRAWS, 3, 3)))
        g = covariance * half_trace(np.eye(3), hessian=H)
        assert uniform_is_optimal(g) is optimal
        uniform, tilted = np.full(3, 1 / 3), np.array([0.45, 0.45, 0.1])
        drawn = {name: losses(np.einsum("n,rnd->rd", w, anchors)) for name, w in (("u", uniform), ("t", tilted))}
        assert close(drawn["u"], weighted_loss(uniform, bias=0.0, covariance=g))
        assert close(drawn["t"], weighted_loss(tilted, bias=0.0, covariance=g))
        assert bool(drawn["u"].mean() < drawn["t"].mean()) is optimal


def test_branch_and_hierarchical_loss_are_identities_of_the_local_loss():
    mean, optimum = np.array([1.0, 2.0, 3.0]), np.zeros(3)
    conditional, persistent = np.diag([0.1, 0.2, 0.3]), np.diag([0.5, 0.1, 0.9])
    branch = branch_loss(mean, optimum=optimum, hessian=H, conditional=conditional, persistent=persistent)
    whole = local_loss(mean, optimum=optimum, hessian=H, covariance=conditional + persistent)
    assert branch.total == pytest.approx(whole.total)
    n, k = 3, 2
    soup = hierarchical_loss(bias=branch.bias, v_intra=k * branch.intra, v_inter=branch.inter, n_branches=n, k_eff=k)
    averaged = local_loss(mean, optimum=optimum, hessian=H, covariance=(conditional + persistent) / n)
    assert soup.total == pytest.approx(averaged.total)
