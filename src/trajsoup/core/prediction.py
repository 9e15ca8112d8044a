"""What the measured variances are for: the loss of soups nobody has made yet, and how far to trust it.

fits per K (and per horizon) -> best K for each N, worth of a branch, worth of tokens
losses of anchors and pairs -> loss of any weighted soup of them
predicted against measured -> how far the quadratic model holds
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trajsoup.core.estimators import BranchFit
from trajsoup.errors import TheoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class BestCount:
    """The K of least predicted loss for one N."""

    n_branches: int
    k: int
    loss: float


def best_counts(fits: Mapping[int, BranchFit], *, n_branches: Sequence[int]) -> tuple[BestCount, ...]:
    """argmin_K a(K) + b(K) / N for each N, over the K that were fitted; ties go to the smaller K."""
    if not fits:
        raise TheoryError("no K was fitted: score soups of at least two branches first")
    found: list[BestCount] = []
    for n in n_branches:
        k = min(fits, key=lambda k: (fits[k].loss(n), k))
        found.append(BestCount(n_branches=n, k=k, loss=fits[k].loss(n)))
    return tuple(found)


def best_count_falls(found: Sequence[BestCount]) -> bool:
    """Whether the best K never rises with N: the prediction of app:selection-bias."""
    ordered = sorted(found, key=lambda best: best.n_branches)
    return all(later.k <= earlier.k for earlier, later in itertools.pairwise(ordered))


def predicted_loss(
    weights: Mapping[str, float], *, anchors: Mapping[str, float], pairs: Mapping[frozenset[str], float]
) -> float:
    """The loss of sum_n alpha_n anchor_n from the losses of the anchors and of their equal pairs.

    A pair's gap is |x - y|_H^2 / 8, and the variance of members is a sum over their pairs, so in the quadratic model
    L(sum alpha x) = sum_n alpha_n L_n - 4 sum_{n<n'} alpha_n alpha_n' gap_nn' exactly, whatever the branches are like.
    """
    if abs(math.fsum(weights.values()) - 1) > 1e-6:
        raise TheoryError(f"the weights sum to {math.fsum(weights.values()):g}, not 1: normalise them")
    total = math.fsum(weight * anchors[name] for name, weight in weights.items())
    for a, b in itertools.combinations(sorted(weights), 2):
        both = frozenset([a, b])
        if both not in pairs:
            raise TheoryError(f"the soup of {a} and {b} was not scored: score every pair, or predict from a fit over N")
        gap = (anchors[a] + anchors[b]) / 2 - pairs[both]
        total -= 4 * weights[a] * weights[b] * gap
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonLaw:
    """L(N, t) = a(t) + b(t) / N at one K, interpolated between the horizons that were fitted, never beyond them."""

    fits: Mapping[int, BranchFit]  # tokens per branch -> fit

    def loss(self, n_branches: int, *, tokens: float) -> float | None:
        """The predicted loss, linear in log t between horizons; None outside them."""
        horizons = sorted(self.fits)
        if not horizons or not horizons[0] <= tokens <= horizons[-1]:
            return None
        curve = [self.fits[t].loss(n_branches) for t in horizons]
        return float(np.interp(math.log(tokens), np.log(horizons), curve))

    def worth_of_tokens(self, n_branches: int, *, tokens: float, more: float) -> float | None:
        """What `more` tokens in every branch take off the loss; None where the law does not reach."""
        now, then = self.loss(n_branches, tokens=tokens), self.loss(n_branches, tokens=tokens + more)
        return None if now is None or then is None else now - then

    def allocation(self, total_tokens: float, *, n_branches: Sequence[int]) -> dict[int, float]:
        """N -> predicted loss at t = T / N (eq:fixed-budget), for every N whose horizon was fitted."""
        found = {n: self.loss(n, tokens=total_tokens / n) for n in n_branches}
        return {n: loss for n, loss in found.items() if loss is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Predicted against measured losses of the same soups."""

    soups: int
    mean_error: float  # measured minus predicted: positive where the quadratic model promises too much
    root_mean_square: float
    worst: float
    r_squared: float | None  # None: all measured losses are equal


def agreement(predicted: Sequence[float], measured: Sequence[float]) -> Agreement:
    """Say how far the quadratic model holds on soups that it did not see."""
    if len(predicted) != len(measured) or not measured:
        raise TheoryError(f"{len(predicted)} predictions for {len(measured)} measurements: compare the same soups")
    p, m = np.array(predicted, np.float64), np.array(measured, np.float64)
    error = m - p
    square = float(np.mean(error**2))
    variance = float(np.var(m))
    return Agreement(
        soups=len(m),
        mean_error=float(error.mean()),
        root_mean_square=math.sqrt(square),
        worst=float(np.max(np.abs(error))),
        r_squared=1 - square / variance if variance > 0 else None,
    )
