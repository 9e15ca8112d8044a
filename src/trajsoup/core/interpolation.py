"""Interpolation between two anchors (eq:interpolation, app:interpolation-protocol).

    two rows of W -> a grid of rows -> scores (validation passes, all in memory) -> best lambda, barrier, gains, instability

Scores come from outside: losses, where lower is better, or accuracies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.errors import GeometryError

GRID = tuple(i / 10 for i in range(11))
STABLE = 0.02  # Frankle's: two points of error; of a loss, two percent of the ends' mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpolation:
    """Scores along one path, at one matched horizon."""

    first: str  # branch at lambda = 0
    second: str  # branch at lambda = 1
    tokens: int  # the horizon of both anchors
    grid: tuple[float, ...]
    scores: tuple[float, ...]
    rank_by: Signal

    @property
    def best(self) -> int:
        """The place of the best score; ties go to the lambda nearest 1/2, then to the smaller."""
        sign = 1 if self.rank_by is Signal.LOSS else -1
        order = [(sign * score, abs(lam - 0.5), lam, i) for i, (lam, score) in enumerate(self._points())]
        return min(order)[3]

    @property
    def best_lambda(self) -> float:
        """The best interpolation coefficient of the grid."""
        return self.grid[self.best]

    @property
    def best_score(self) -> float:
        """The score there."""
        return self.scores[self.best]

    @property
    def gain_over_better_end(self) -> float:
        """How much the best interpolation improves on the better anchor; zero if an end is best."""
        ends = (self.scores[0], self.scores[-1])
        return min(ends) - self.best_score if self.rank_by is Signal.LOSS else self.best_score - max(ends)

    @property
    def gain_over_mean(self) -> float:
        """How much the best interpolation improves on the mean of the two anchors' scores."""
        gap = (self.scores[0] + self.scores[-1]) / 2 - self.best_score
        return gap if self.rank_by is Signal.LOSS else -gap

    @property
    def barrier(self) -> float:
        """The largest worsening over the straight line between the ends' scores; zero: linearly connected."""
        sign = 1 if self.rank_by is Signal.LOSS else -1
        a, b = self.scores[0], self.scores[-1]
        return max(0.0, *(sign * (score - a - lam * (b - a)) for lam, score in self._points()))

    @property
    def worst(self) -> int:
        """The place of the worst score, an end included; ties go to the smaller lambda."""
        sign = 1 if self.rank_by is Signal.LOSS else -1
        return max(range(len(self.grid)), key=lambda i: (sign * self.scores[i], -i))

    @property
    def instability(self) -> float:
        """Of linear mode connectivity (Frankle 2020): the worst score on the segment minus the mean of its ends."""
        gap = self.scores[self.worst] - (self.scores[0] + self.scores[-1]) / 2
        return gap if self.rank_by is Signal.LOSS else -gap

    @property
    def stable(self) -> bool:
        """Whether the two ends are linearly connected: the instability stays below 2 %."""
        whole = (self.scores[0] + self.scores[-1]) / 2 if self.rank_by is Signal.LOSS else 1.0
        return self.instability < STABLE * whole

    @property
    def flat(self) -> bool:
        """Whether no lambda differs from another: then the best one means nothing."""
        return max(self.scores) == min(self.scores)

    def _points(self) -> list[tuple[float, float]]:
        return list(zip(self.grid, self.scores, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parabola:
    """The least-squares parabola of a path: in the local quadratic model every path is exactly one."""

    curvature: float  # second derivative in lambda: |theta_n - theta_n'|_H^2 for losses
    best_lambda: float | None  # of the vertex, where it is an optimum
    r_squared: float  # how far the quadratic model holds along this path


def interpolation_rows(first: Row, second: Row, *, grid: Sequence[float] = GRID) -> tuple[Row, ...]:
    """Return theta_nn'(lambda) = (1 - lambda) theta_n + lambda theta_n' for every lambda, as rows of W."""
    _check_grid(grid)
    return tuple(
        mixed_row(((first, 1 - lam), (second, lam)), name=f"{first.name}~{second.name}@{lam:g}") for lam in grid
    )


def mixed_row(parts: Iterable[tuple[Row, float]], *, name: str) -> Row:
    """Rows, each by its share, as one row of W."""
    weights: dict[str, float] = {}
    for row, share in parts:
        for key, weight in row.weights.items():
            weights[key] = weights.get(key, 0.0) + share * weight
    return Row(name=name, weights={key: weight for key, weight in weights.items() if weight != 0})


def interpolation(
    scores: Sequence[float],
    *,
    first: str,
    second: str,
    tokens: int,
    grid: Sequence[float] = GRID,
    rank_by: Signal = Signal.LOSS,
) -> Interpolation:
    """Read a path from the scores of its rows, in the order of the grid."""
    _check_grid(grid)
    if len(scores) != len(grid):
        raise GeometryError(f"{len(scores)} scores for {len(grid)} values of lambda: score every row of the path")
    for lam, score in zip(grid, scores, strict=True):
        if not math.isfinite(score):
            raise GeometryError(
                f"the interpolation of {first} and {second} at lambda {lam:g} scored {score}: the two anchors do not "
                "connect there, or a checkpoint is damaged; run doctor on them"
            )
    return Interpolation(
        first=first, second=second, tokens=tokens, grid=tuple(grid), scores=tuple(scores), rank_by=rank_by
    )


def parabola(path: Interpolation) -> Parabola:
    """Fit L(lambda) by a parabola and say how well that describes it."""
    if len(path.grid) < 4:
        raise GeometryError(f"a grid of {len(path.grid)} lambdas cannot test a parabola: use at least four")
    lam, score = np.array(path.grid), np.array(path.scores)
    fit = np.polynomial.Polynomial.fit(lam, score, 2).convert().coef
    a, b, c = (float(fit[i]) if i < len(fit) else 0.0 for i in range(3))
    residual = float(np.sum((score - a - b * lam - c * lam**2) ** 2))
    total = float(np.sum((score - score.mean()) ** 2))
    optimum = c > 0 if path.rank_by is Signal.LOSS else c < 0
    return Parabola(
        curvature=2 * c,
        best_lambda=-b / (2 * c) if optimum else None,
        r_squared=1 - residual / total if total > 0 else 1.0,
    )


def _check_grid(grid: Sequence[float]) -> None:
    if len(grid) < 2 or grid[0] != 0 or grid[-1] != 1 or any(b <= a for a, b in itertools.pairwise(grid)):
        raise GeometryError(f"the grid of lambda must rise from 0 to 1, got {list(grid)}: add the two ends")
