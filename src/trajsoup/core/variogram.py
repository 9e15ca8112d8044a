"""How fast checkpoints of a branch forget each other, from losses alone; and so how many of K count (K_eff).

    losses of checkpoints and of their means -> gaps -> gamma(lag) = V (1 - r^lag) -> K_eff of any positions

Half the distance in curvature of two checkpoints that lie `lag` tokens apart, 1/4 |x_i - x_j|_H^2, has the expectation
V (1 - r^lag): a variogram. A mean of members with weights w has the gap sum_{i<j} w_i w_j 2 gamma(lag_ij) below the mean of
their losses, so every scored anchor is an observation of it. What a branch's checkpoints have in common at any lag opens
no gap and belongs to V_inter; taking K_eff = K instead makes K_eff(K_max) = K_max whatever the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajsoup.core.covariance import effective_count
from trajsoup.errors import TheoryError

Array = NDArray[np.float64]
LENGTHS = 120  # that are tried, from a twentieth of the smallest lag to twenty times the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What averaging some checkpoints of one branch took off the mean of their losses."""

    tokens: tuple[int, ...]  # where the members were saved; equal weights
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Variogram:
    """gamma(lag) = V (1 - exp(-lag / length)): r = exp(-1 / length)."""

    v_intra: float  # V: what one checkpoint's fluctuation costs
    length: float  # tokens in which the correlation falls to 1/e; 0: neighbours are independent

    def correlation(self, lag: ArrayLike) -> Array:
        """r^lag."""
        lags = np.abs(np.asarray(lag, np.float64))
        return np.exp(-lags / self.length) if self.length > 0 else (lags == 0).astype(np.float64)

    def gamma(self, lag: ArrayLike) -> Array:
        """The variogram at a distance in tokens."""
        return self.v_intra * (1 - self.correlation(lag))

    def k_eff(self, tokens: Sequence[int]) -> float:
        """K_eff of checkpoints at these positions (eq:effective-count-details)."""
        at = np.asarray(tokens, np.float64)
        return effective_count(self.correlation(at[:, None] - at[None, :]))


def fit_variogram(gaps: Sequence[Gap]) -> Variogram:
    """Least squares over what averaging gained; V is linear in it, so only the length is searched for."""
    seen = [found for found in gaps if len(found.tokens) > 1]
    lags = [np.subtract.outer(np.array(g.tokens, np.float64), np.array(g.tokens, np.float64)) for g in seen]
    apart = sorted({abs(float(lag)) for matrix in lags for lag in matrix.ravel() if lag})
    if len(apart) < 2:
        raise TheoryError(
            f"the merged checkpoints lie at {len(apart)} distance{'s' * (len(apart) != 1)} from each other, and how fast "
            "they forget shows at two or more: score anchors of K = 3 and more"
        )
    gained = np.array([found.gap for found in seen])

    def shape(length: float) -> Array:
        unit = Variogram(v_intra=1.0, length=length)
        return np.array([float(unit.gamma(matrix).mean()) for matrix in lags])  # sum over pairs, both ways

    def fitted(length: float) -> tuple[float, float]:
        x = shape(length)
        v = float(x @ gained / max(float(x @ x), 1e-300))
        return float(np.sum((gained - v * x) ** 2)), v

    steps = np.linspace(0, 1, LENGTHS)
    tried = [0.0, *(apart[0] / 20 * (400 * apart[-1] / apart[0]) ** float(step) for step in steps)]
    length = min(tried, key=lambda length: (fitted(length)[0], length))
    v = fitted(length)[1]
    if not v > 0 or not math.isfinite(v):
        raise TheoryError(
            f"averaging within branches gained nothing (V = {v:.2g}): there is no variation to tell apart"
        )
    return Variogram(v_intra=v, length=length)


def from_distances(distances: ArrayLike, tokens: Sequence[int]) -> list[Gap]:
    """The same observations from measured distances D_ij = 1/2 |x_i - x_j|_H^2 of one branch: every pair as a soup of two."""
    d = np.asarray(distances, np.float64)
    n = len(tokens)
    return [
        Gap(tokens=(tokens[i], tokens[j]), gap=float(d[i, j]) / 4)
        for i in range(n)
        for j in range(i + 1, n)
        if tokens[i] != tokens[j]
    ]
