"""Effective counts and variance-optimal weights: scalars of a curvature-weighted covariance matrix.

rank covariance c_jj' -> V_intra(K), K_eff(K)          (eq:effective-count-details)
branch or rank covariance -> which fixed weights are best (app:covariance, app:uniform-covariance-criterion)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajsoup.errors import TheoryError

Array = NDArray[np.float64]
TOLERANCE = 1e-9  # relative to the largest entry


def intra_variance(covariance: ArrayLike, *, k: int | None = None) -> float:
    """V_intra(K) = K^-2 sum_jj' c_jj' over the first K ranks; None: over all (eq:intra-cov)."""
    c = np.asarray(covariance, np.float64)[:k, :k]
    return max(float(c.mean()), 0.0)


def effective_count(covariance: ArrayLike, *, k: int | None = None) -> float:
    """K_eff(K) = V_intra(1) / V_intra(K) (eq:effective-count-details); infinite when nothing varies any more.

    At most K where no covariance is negative; above K where negative ones cancel; 1 for perfect correlation.
    """
    c = np.asarray(covariance, np.float64)
    first, rest = float(c[0, 0]), intra_variance(c, k=k)
    if first < 0:
        raise TheoryError(f"the variance of rank 1 is {first:g}: a variance is not negative")
    return math.inf if rest <= TOLERANCE * first else first / rest


def exchangeable_count(k: int, *, v_intra: float, covariance: float) -> float:
    """K_eff = K V / (V + (K - 1) c) when all ranks covary equally (app:uniform-covariance-criterion)."""
    if v_intra <= 0:
        raise TheoryError(f"V_intra is {v_intra:g}: an effective count needs something that varies")
    least = -v_intra / (k - 1) if k > 1 else -v_intra
    if not least * (1 + TOLERANCE) <= covariance <= v_intra * (1 + TOLERANCE):
        raise TheoryError(f"a covariance of {covariance:g} is impossible among {k} ranks of variance {v_intra:g}")
    rest = v_intra + (k - 1) * covariance
    return math.inf if rest <= TOLERANCE * v_intra else k * v_intra / rest


def exchangeable_variance(weights: ArrayLike, *, variance: float, covariance: float) -> float:
    """alpha^T G alpha = c + (v - c) |alpha|^2 for common diagonal v and off-diagonal c (app:covariance)."""
    alpha = np.asarray(weights, np.float64)
    return covariance + (variance - covariance) * float(alpha @ alpha)


def inverse_variance_weights(variances: ArrayLike) -> Array:
    """alpha_n proportional to 1 / v_n: least variance for independent anchors (app:covariance).

    Anchors without any variance share all the weight between them.
    """
    v = np.asarray(variances, np.float64)
    if v.size == 0 or np.any(v < 0) or not np.all(np.isfinite(v)):
        raise TheoryError(f"variances {v.tolist()} must be finite and not negative: drop the branch that is not")
    still = v == 0
    raw: Array = still.astype(np.float64) if still.any() else 1 / v
    return raw / np.sum(raw)


def uniform_is_optimal(covariance: ArrayLike, *, tolerance: float = TOLERANCE) -> bool:
    """Whether 1/m minimises a^T A a on the simplex: exactly when A 1 = lambda 1 (app:uniform-covariance-criterion)."""
    a = np.asarray(covariance, np.float64)
    return float(np.ptp(a.sum(axis=1))) <= tolerance * max(float(np.max(np.abs(a))), 1e-300)
