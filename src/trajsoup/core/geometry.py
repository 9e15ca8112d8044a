"""Distances, angles, directions and projections of checkpoints and soups (app:geometry). Reads no weight.

    Gram -> combined with rows of W (gram.py) -> distances, cosines
    merged points of a branch (trajectory.py) -> direction -> alignment of branches
    everything -> a plane to draw in

A vector of weight space is written as coefficients over the checkpoints of the Gram matrix: u stands for
sum_c u_c (x_c - x0), and inner products are u^T G v. What is undefined (the angle of a zero displacement) is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.gram import WHOLE, Gram, weights_matrix
from trajsoup.core.soup import Row
from trajsoup.core.trajectory import MergedPoint
from trajsoup.errors import GeometryError

Array = NDArray[np.float64]
NOTHING = 1e-12  # of the largest squared length: below this a displacement is rounding, not movement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Direction:
    """The unit leading principal component d_n of a branch's merged trajectory (app:direction-estimator)."""

    branch: str
    coefficients: Array  # over the keys of the Gram matrix; they sum to zero
    variance_share: float  # carried by this component
    net_displacement: float  # length from the first merged point to the last
    points: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alignment:
    """Pairwise cosines c_nn' of branch directions and their angles (fig:direction-heatmap)."""

    branches: tuple[str, ...]
    cosines: Array

    @property
    def angles(self) -> Array:
        """phi = arccos(c), in degrees."""
        return np.degrees(np.arccos(np.clip(self.cosines, -1, 1)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projection:
    """Points of weight space in a plane (fig:interpolation, right)."""

    names: tuple[str, ...]
    points: Array  # one line per name: x, y
    variance_share: tuple[float, float]  # of each axis, among the points that fixed the plane
    distance_kept: Array  # by name: share of the squared distance to the plane's origin that the plane shows


def distances(gram: Gram, *, group: str = WHOLE) -> Array:
    """Euclidean distances between all rows."""
    inner = gram.group(group).inner
    square = np.diag(inner)
    return np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * inner, 0))


def displacements(gram: Gram, *, group: str = WHOLE) -> Array:
    """Each row's distance from the centre."""
    return np.sqrt(np.maximum(np.diag(gram.group(group).inner), 0))


def cosines(gram: Gram, *, group: str = WHOLE) -> Array:
    """Cosines between displacements from the centre; NaN for a row that does not move."""
    inner = gram.group(group).inner
    square = np.diag(inner)
    lengths = np.sqrt(np.maximum(square, 0))
    still = lengths**2 <= NOTHING * max(float(square.max()), 0.0) if len(square) else np.zeros(0, np.bool_)
    product = np.outer(lengths, lengths)
    found = np.full(inner.shape, np.nan)
    np.divide(inner, product, out=found, where=~(still[:, None] | still[None, :]))
    return np.clip(found, -1, 1)


def direction(gram: Gram, rows: Sequence[Row], *, branch: str, group: str = WHOLE) -> Direction:
    """PCA of the centred sequence of merged points: the leading component, oriented along the net displacement.

    `rows` are the merged points in order of tokens. Where the net displacement is exactly across the component, which
    leaves its sign open, the coefficient of the last point is made positive.
    """
    if len(rows) < 2:
        raise GeometryError(
            f"branch {branch!r} has {len(rows)} merged point{'s' * (len(rows) != 1)} in the matched interval, and a "
            "direction needs two: widen the interval, use a shorter window, or save checkpoints more often"
        )
    w = weights_matrix(gram, rows)
    inner = gram.group(group).inner
    centred = w - w.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ inner @ centred.T)
    total = float(np.sum(np.maximum(values, 0)))
    scale = float(np.diag(inner).max()) if len(inner) else 0.0
    if total <= NOTHING * scale or total == 0:
        raise GeometryError(
            f"branch {branch!r} does not move over the matched interval ({len(rows)} merged points are the same), so "
            "it has no direction: check that its checkpoints differ"
        )
    leading = vectors[:, -1] @ centred / np.sqrt(values[-1])
    net = w[-1] - w[0]
    along = float(leading @ inner @ net)
    if along < 0 or (along == 0 and vectors[-1, -1] < 0):
        leading = -leading
    return Direction(
        branch=branch,
        coefficients=leading,
        variance_share=float(values[-1]) / total,
        net_displacement=float(np.sqrt(max(net @ inner @ net, 0))),
        points=len(rows),
    )


def random_walk_share(points: int, *, window: int = 1) -> float:
    """What the leading component carries of a pure random walk: the null beside `variance_share`.

    Each of the points is the mean of the last `window` checkpoints, and checkpoints are one independent step apart. In as
    many dimensions as a model has, the inner products of such a walk are their expectations min(i, j), so the share is
    that of the leading eigenvalue: about 6 / pi^2 of long walks, and more the more is averaged. It has no direction.
    """
    if points < 2:
        raise GeometryError(f"{points} point has no direction: a walk needs two")
    place = np.arange(1, points + window)
    mean = np.array([(place > i) & (place <= i + window) for i in range(points)]) / window
    walk = mean @ np.minimum.outer(place, place) @ mean.T
    centre = np.eye(points) - 1 / points
    values = np.linalg.eigvalsh(centre @ walk @ centre)
    return float(values[-1] / values.sum())


def directions_of(
    measured: Gram, merged: Mapping[str, Sequence[MergedPoint]]
) -> tuple[list[Direction], tuple[str, ...]]:
    """The directions of the branches that have one, and why the others have none."""
    found: list[Direction] = []
    notes: list[str] = []
    for branch, points in merged.items():
        rows = [point.row for point in points]
        try:
            found.append(direction(measured, rows, branch=branch))
        except GeometryError as error:
            notes.append(str(error))
    return found, tuple(notes)


def alignment(gram: Gram, directions: Sequence[Direction], *, group: str = WHOLE) -> Alignment:
    """c_nn' = d_n^T d_n' for every pair of branches (app:direction-estimator)."""
    if not directions:
        raise GeometryError("no branch has a direction: there is nothing to align")
    u = np.array([d.coefficients for d in directions])
    return Alignment(
        branches=tuple(d.branch for d in directions), cosines=np.clip(u @ gram.group(group).inner @ u.T, -1, 1)
    )


def project(gram: Gram, rows: Sequence[Row], *, fit: Sequence[Row] | None = None, group: str = WHOLE) -> Projection:
    """Project rows onto the plane of the two leading principal components of `fit` (None: of `rows`).

    The plane goes through the mean of `fit`; each axis points where the last row of `fit` lies. Points that span less
    than a plane get zeros on what is missing.
    """
    chosen = rows if fit is None else fit
    if not rows or not chosen:
        raise GeometryError("there is no point to project: name checkpoints or soups")
    inner = gram.group(group).inner
    w = weights_matrix(gram, chosen)
    origin = w.mean(axis=0)
    centred = w - origin
    values, vectors = np.linalg.eigh(centred @ inner @ centred.T)
    values = np.maximum(values, 0)
    total = float(values.sum())
    axes = np.zeros((2, len(gram.keys)))
    shares = [0.0, 0.0]
    for axis in range(min(2, len(values))):
        value = float(values[-1 - axis])
        if total > 0 and value > NOTHING * total:
            axes[axis] = vectors[:, -1 - axis] @ centred / np.sqrt(value)
            shares[axis] = value / total
            if centred[-1] @ inner @ axes[axis] < 0:
                axes[axis] *= -1
    moved = weights_matrix(gram, rows) - origin
    points = moved @ inner @ axes.T
    squares = np.maximum(np.einsum("ij,jk,ik->i", moved, inner, moved), 0)
    kept = np.ones(len(rows))
    np.divide(np.sum(points**2, axis=1), squares, out=kept, where=squares > NOTHING * max(float(squares.max()), 1e-300))
    return Projection(
        names=tuple(row.name for row in rows),
        points=points,
        variance_share=(shares[0], shares[1]),
        distance_kept=np.minimum(kept, 1),
    )
