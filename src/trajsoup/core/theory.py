"""Excess loss of averaged models in the local quadratic model (sec:theory).

    L(theta) = L* + 1/2 |theta - theta*|_H^2     =>     excess = bias of the mean + curvature-weighted variance

Every function takes population quantities and returns the identity's terms. H may be singular. What measures these
quantities from losses is in estimators.py; what decides N and K with them is in allocation.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajsoup.errors import TheoryError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessLoss:
    """The terms of an expected excess loss. `intra` and `inter` are what one branch, or the soup, retains of each."""

    bias: float  # 1/2 |E theta - theta*|_H^2
    intra: float = 0.0  # variation within trajectories
    inter: float = 0.0  # persistent variation between branches

    @property
    def total(self) -> float:
        """E L - L*."""
        return self.bias + self.intra + self.inter


def half_norm(displacement: ArrayLike, *, hessian: ArrayLike) -> float:
    """1/2 |x|_H^2, the loss of a displacement."""
    x, h = np.asarray(displacement, np.float64), np.asarray(hessian, np.float64)
    return float(x @ h @ x) / 2


def half_trace(covariance: ArrayLike, *, hessian: ArrayLike) -> float:
    """1/2 tr(H C), the loss of a variation."""
    return float(np.sum(np.asarray(hessian, np.float64) * np.asarray(covariance, np.float64).T)) / 2


def local_loss(mean: ArrayLike, *, optimum: ArrayLike, hessian: ArrayLike, covariance: ArrayLike) -> ExcessLoss:
    """Bias and variance of any random model (thm:local-loss, eq:expected-loss). All variance counts as `inter`."""
    displacement = np.asarray(mean, np.float64) - np.asarray(optimum, np.float64)
    return ExcessLoss(bias=half_norm(displacement, hessian=hessian), inter=half_trace(covariance, hessian=hessian))


def branch_loss(
    mean: ArrayLike, *, optimum: ArrayLike, hessian: ArrayLike, conditional: ArrayLike, persistent: ArrayLike
) -> ExcessLoss:
    """B_n(K) + V_intra,n(K) + V_inter,n(K) of an anchor (thm:branch-loss, eq:branch-loss).

    `conditional` is E Cov(anchor | F_n), what remains when the branch's persistent component is held fixed, and
    `persistent` is Cov(E[anchor | F_n]).
    """
    displacement = np.asarray(mean, np.float64) - np.asarray(optimum, np.float64)
    return ExcessLoss(
        bias=half_norm(displacement, hessian=hessian),
        intra=half_trace(conditional, hessian=hessian),
        inter=half_trace(persistent, hessian=hessian),
    )


def hierarchical_loss(*, bias: float, v_intra: float, v_inter: float, n_branches: int, k_eff: float) -> ExcessLoss:
    """B_soup(K) + V_intra / (N K_eff) + V_inter / N (thm:hierarchical, eq:hierarchical)."""
    _at_least_one(n_branches=n_branches)
    if not k_eff > 0:
        raise TheoryError(f"K_eff is {k_eff:g}: an effective count is positive")
    return ExcessLoss(bias=bias, intra=v_intra / (n_branches * k_eff), inter=v_inter / n_branches)


def averaging_methods(
    *, biases: Mapping[str, float], v_intra: float, v_inter: float, n_branches: int, k_eff: float
) -> dict[str, ExcessLoss]:
    """The rows of tab:averaging-methods. `biases` gives each its own: rank-1, intra, inter, trajectory-soup."""
    rows = {"rank-1": (1, 1.0), "intra": (1, k_eff), "inter": (n_branches, 1.0), "trajectory-soup": (n_branches, k_eff)}
    return {
        name: hierarchical_loss(bias=biases[name], v_intra=v_intra, v_inter=v_inter, n_branches=n, k_eff=count)
        for name, (n, count) in rows.items()
    }


def branch_covariance(blocks: Sequence[Sequence[ArrayLike]], *, hessian: ArrayLike) -> Array:
    """G_nn' = 1/2 tr(H Gamma_nn') from the cross-covariances of anchors (app:covariance). Symmetric, semidefinite."""
    return np.array([[half_trace(block, hessian=hessian) for block in line] for line in blocks])


def weighted_loss(weights: ArrayLike, *, bias: float, covariance: ArrayLike) -> float:
    """B_alpha(K) + alpha^T G alpha (eq:general-weighted-loss); `bias` is that of the weighted mean model."""
    alpha, g = _weights(weights), np.asarray(covariance, np.float64)
    return bias + float(alpha @ g @ alpha)


def general_loss(*, bias: float, covariance: ArrayLike) -> float:
    """B_soup(K) + the mean entry of G: heterogeneous or correlated branches, equal weights (eq:general-cov-loss)."""
    return bias + float(np.mean(np.asarray(covariance, np.float64)))


def correlated_floor(covariance: ArrayLike) -> float:
    """The average off-diagonal of G: what no number of branches averages away; zero for one branch (app:covariance)."""
    g = np.asarray(covariance, np.float64)
    n = len(g)
    return 0.0 if n < 2 else float(g.sum() - np.trace(g)) / (n * (n - 1))


def two_level_variance(
    branch_weights: ArrayLike, *, rank_weights: Sequence[ArrayLike], residuals: Sequence[ArrayLike], v_inter: float
) -> float:
    """Variance of theta_{alpha,w} for independent branches (eq:general-two-level-variance).

    `residuals` holds G_n^eps(K), the curvature-weighted covariance of each branch's ranks.
    """
    alpha = _weights(branch_weights)
    terms = [_form(_weights(w), g) + v_inter for w, g in zip(rank_weights, residuals, strict=True)]
    return float(np.sum(alpha**2 * np.array(terms)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPenalty:
    """What departing from the two uniform averages costs in variance (eq:weight-imbalance-penalty)."""

    minimum: float  # V_intra / (N K_eff) + V_inter / N; eq:two-level-minimum-variance
    branches: float  # for unequal branch weights
    ranks: float  # for unequal weights within branches

    @property
    def total(self) -> float:
        """The variance of the weighted model."""
        return self.minimum + self.branches + self.ranks


def weight_penalty(
    branch_weights: ArrayLike, *, rank_weights: Sequence[ArrayLike], residuals: Sequence[ArrayLike], v_inter: float
) -> WeightPenalty:
    """Price unequal weights under the hypotheses of cor:equal-weights, which are checked.

    Every G_n^eps must have equal row sums, the same in all branches; then uniform weights at both levels are optimal.
    """
    alpha = _weights(branch_weights)
    n = len(alpha)
    sums = np.array([np.sum(np.asarray(g, np.float64), axis=1) for g in residuals])
    if np.ptp(sums) > 1e-9 * max(float(np.max(np.abs(sums))), 1e-300):
        raise TheoryError(
            f"the rank covariances have row sums from {sums.min():g} to {sums.max():g}, and the corollary needs them "
            "equal: use two_level_variance, and do not expect uniform weights to be optimal"
        )
    k = sums.shape[1]
    v = float(sums[0, 0]) / k + v_inter
    ranks = [a**2 * _form(_weights(w) - 1 / k, g) for a, w, g in zip(alpha, rank_weights, residuals, strict=True)]
    return WeightPenalty(
        minimum=v / n, branches=v * float(np.sum((alpha - 1 / n) ** 2)), ranks=math.fsum(float(term) for term in ranks)
    )


def _form(vector: Array, matrix: ArrayLike) -> float:
    return float(vector @ np.asarray(matrix, np.float64) @ vector)


def _weights(weights: ArrayLike) -> Array:
    alpha = np.asarray(weights, np.float64)
    if np.any(alpha < 0) or abs(float(alpha.sum()) - 1) > 1e-9:
        raise TheoryError(f"weights {alpha.tolist()} must be nonnegative and sum to one: normalise them")
    return alpha


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise TheoryError(f"{name} is {count}: it must be at least 1")
