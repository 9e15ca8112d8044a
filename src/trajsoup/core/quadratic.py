"""The loss of any weighting of some points, and the best one, in the local quadratic model (sec:local-model).

    losses of points, distances in curvature -> LocalModel -> promised loss of weights, weights of least promised loss

For weights that sum to one, L(w) = l'w - 1/2 w'Dw with D_ij = 1/2 |x_i - x_j|_H^2. With B the inner products <x_i, x_j>_H
about any centre, that is (l - diag(B) / 2)'w + 1/2 w'Bw, which is convex: B is a Gram matrix. Measured distances are
noisy and need not be one, so what is negative in them is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajsoup.core.numerics import nonnegative_least_squares
from trajsoup.errors import TheoryError

Array = NDArray[np.float64]
LEAST = 1e-6  # a weight below this is none
STIFF = 1e4  # how much stiffer the sum of the weights is held than the loss; the rest is divided out
ROUNDING = 1e-12  # of the largest eigenvalue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalModel:
    """Losses of points and their inner products in curvature."""

    losses: Array  # l
    inner: Array  # B, about any centre; positive semidefinite

    @property
    def scale(self) -> float:
        """The mean square of a point: the unit of `tau`."""
        return float(np.trace(self.inner)) / len(self.losses)

    def loss(self, weights: ArrayLike) -> float:
        """What the model promises of these weights, which sum to one."""
        w = np.asarray(weights, np.float64)
        return float((self.losses - np.diag(self.inner) / 2) @ w + w @ self.inner @ w / 2)

    def best(self, *, around: ArrayLike, tau: float) -> Array:
        """argmin L(w) + tau/2 |w - around|^2 over w >= 0 of sum one; tau in units of `scale`."""
        u, n, pull = np.asarray(around, np.float64), len(self.losses), max(tau, ROUNDING) * self.scale
        if self.scale <= ROUNDING:  # no distance shows, so nothing says where to go
            return u
        linear = self.losses - np.diag(self.inner) / 2 - pull * u
        linear = linear - linear.min()  # of no weight on the simplex, and the sum stays stiff
        values, vectors = np.linalg.eigh(self.inner + pull * np.eye(n))
        root = np.sqrt(np.maximum(values, ROUNDING * values[-1]))
        stiff = STIFF * root[-1]
        rows = np.vstack([(vectors * root).T, np.full((1, n), stiff)])
        w = nonnegative_least_squares(rows, np.append(-(vectors / root).T @ linear, stiff))
        w[w < LEAST] = 0.0
        return w / w.sum()


def from_pairs(losses: Sequence[float], pairs: Mapping[tuple[int, int], float]) -> LocalModel:
    """The model of points whose midpoints were scored: D_ij = 4 (mean of the two losses - loss of the midpoint)."""
    each = np.asarray(losses, np.float64)
    n = len(each)
    d = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            if (i, j) not in pairs:
                raise TheoryError(f"the midpoint of points {i} and {j} was not scored: score every pair")
            d[i, j] = d[j, i] = 4 * ((each[i] + each[j]) / 2 - pairs[i, j])
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-centring @ d @ centring)
    return LocalModel(losses=each, inner=(vectors * np.maximum(values, 0)) @ vectors.T)


def from_products(
    losses: Sequence[float], products: Sequence[Array], *, rows: Array, merged: Sequence[float]
) -> LocalModel:
    """The model of points whose inner products are known by group of tensors: H is one scale for each group.

    The scales are those that explain best what averaging gained in the `rows` that were scored:
    sum_i w_i l_i - L(w) = 1/2 sum_g c_g [w' diag(G_g) - w' G_g w], c >= 0.
    """
    each = np.asarray(losses, np.float64)
    gaps = rows @ each - np.asarray(merged, np.float64)
    spread = [(rows @ np.diag(g) - np.einsum("ri,ij,rj->r", rows, g, rows)) / 2 for g in products]
    scales = nonnegative_least_squares(np.array(spread).T, gaps)
    inner = np.zeros((len(each), len(each)))
    for scale, g in zip(scales, products, strict=True):
        inner += scale * g
    return LocalModel(losses=each, inner=inner)
