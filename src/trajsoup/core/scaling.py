"""Scaling laws of score against compute (eq:accuracy-power-law, app:scaling-fit).

    points (compute, score) -> fit within bounds -> better than a constant? -> law, R^2, band -> scores, also beyond

For accuracy S(C) = A - B (C / C0)^-alpha; for loss the same shape falling, A + B (C / C0)^-alpha; B > 0, alpha > 0. C0
is the compute of the first fitted point. A curve that no such law describes comes back without one, and says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajsoup.core.numerics import bounded_least_squares, t_quantile
from trajsoup.core.signal import Signal
from trajsoup.errors import ScalingError

Array = NDArray[np.float64]
EXPONENTS = (0.01, 5.0)  # below, the law is a logarithm whose asymptote means nothing; above, a step
LEAST_POINTS = 6  # with fewer AICc cannot tell three parameters and an error from anything else
LAGS = np.linspace(0, 0.95, 20)  # correlations of neighbouring residuals that are weighed


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """S(C) = A -+ B (C / C0)^-alpha."""

    asymptote: float  # A
    amplitude: float  # B
    exponent: float  # alpha
    reference: float  # C0, in FLOPs
    rank_by: Signal = Signal.ACCURACY

    def score(self, compute: float) -> float:
        """S(C)."""
        return float(self.scores([compute])[0])

    def scores(self, compute: ArrayLike) -> Array:
        """S at many C."""
        c = np.asarray(compute, np.float64)
        if np.any(c <= 0):
            raise ScalingError("compute must be positive: the law has no value at zero FLOPs")
        return self.asymptote + _sign(self.rank_by) * self.amplitude * (c / self.reference) ** -self.exponent

    def compute_for(self, score: float) -> float | None:
        """The C at which the law reaches a score; None if it never does."""
        gap = self.asymptote - score if self.rank_by is Signal.ACCURACY else score - self.asymptote
        if gap <= 0 or self.amplitude <= 0:
            return None
        try:
            return self.reference * (gap / self.amplitude) ** (-1 / self.exponent)
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFit:
    """A law and the points it was fitted to. Without a law, `missing` says why."""

    computes: tuple[float, ...]
    measured: tuple[float, ...]
    rank_by: Signal
    law: PowerLaw | None = None
    r_squared: float | None = None
    aicc_gain: float | None = (
        None  # AICc of a constant minus that of the law: below zero there is no law; None: not told
    )
    missing: str | None = None
    warning: str | None = None  # the law stands, but one of its parameters is not to be trusted

    @property
    def fitted_until(self) -> float:
        """The largest compute that entered the fit: beyond it a line is dashed."""
        return max(self.computes)

    def is_extrapolated(self, compute: float) -> bool:
        """Whether a value lies outside the fitted range."""
        return not min(self.computes) <= compute <= self.fitted_until

    def require_law(self) -> PowerLaw:
        """The law, or the reason why there is none."""
        if self.law is None:
            raise ScalingError(f"there is no scaling law through {len(self.computes)} points: {self.missing}")
        return self.law


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """A fitted curve with its band."""

    computes: Array
    scores: Array
    low: Array
    high: Array
    extrapolated: NDArray[np.bool_]
    exponent: tuple[float, float]
    asymptote: tuple[float, float]
    correlation: float  # of neighbouring residuals, for which it allows


def fit_power_law(points: Sequence[tuple[float, float]], *, rank_by: Signal = Signal.ACCURACY) -> ScalingFit:
    """Fit A, B >= 0 and alpha by least squares to points (compute, score), in any order."""
    ordered = sorted(points)
    computes, measured = tuple(c for c, _ in ordered), tuple(s for _, s in ordered)
    if any(not math.isfinite(value) for point in ordered for value in point) or any(c <= 0 for c in computes):
        raise ScalingError("every point needs a positive compute and a finite score: drop the ones that have none")

    def without(reason: str, gain: float | None = None) -> ScalingFit:
        return ScalingFit(computes=computes, measured=measured, rank_by=rank_by, missing=reason, aicc_gain=gain)

    distinct = len(set(computes))
    if distinct < LEAST_POINTS:
        return without(
            f"{distinct} different computes are too few for three parameters: measure at least {LEAST_POINTS}"
        )
    score = np.array(measured)
    total = float(np.sum((score - score.mean()) ** 2))
    if total <= 1e-24 * max(float(np.max(np.abs(score))) ** 2, 1e-300):
        return without(f"the curve is flat at {measured[0]:g}: it has neither amplitude nor exponent")
    law, residual = _fit(np.array(computes), score, rank_by)
    if law.amplitude <= 0:
        return without("the score does not improve with compute, and the law only rises: compare checkpoints directly")
    gain = _aicc(total, len(score), parameters=1) - _aicc(residual, len(score), parameters=3)
    if gain <= 0:
        return without(
            f"a constant describes it better (AICc lower by {-gain:.1f}): what rises and falls may be noise", gain
        )
    at_bound = [bound for bound in EXPONENTS if math.isclose(law.exponent, bound, rel_tol=1e-3)]
    warning = None
    if at_bound:
        kind = (
            "still improves like a logarithm: its asymptote"
            if at_bound[0] == EXPONENTS[0]
            else "has levelled off at once: its exponent"
        )
        warning = f"alpha is at its bound {at_bound[0]:g}: the curve {kind} means nothing"
    return ScalingFit(
        computes=computes,
        measured=measured,
        rank_by=rank_by,
        law=law,
        r_squared=1 - residual / total,
        aicc_gain=gain,
        warning=warning,
    )


def law_band(fit: ScalingFit, *, computes: Sequence[float], level: float = 0.95) -> Band:
    """The band of the curve and the intervals of its parameters, for residuals of which neighbours are correlated.

    Points along one run share what that run is, so residuals come in stretches, and a band for independent ones covers
    55 to 71 %. Neighbours are taken to be correlated by some rho (first-order autoregression) which the restricted
    likelihood weighs; the parameters' covariance follows by the delta method. In simulation (tests/core/test_scaling.py)
    that covers 90 to 99 % up to rho = 0.6, where moving blocks of so short a series cover about 60 %. Beyond it, less.
    """
    law = fit.require_law()
    c, at = np.array(fit.computes), np.asarray(computes, np.float64)
    n = len(c)
    slopes, there = _slopes(law, c), _slopes(law, at)
    rho, variance = _correlation(np.array(fit.measured) - law.scores(c), slopes)
    turned = np.linalg.pinv(slopes)
    covariance = turned @ (variance * _stretches(n, rho)) @ turned.T
    t = t_quantile((1 + level) / 2, degrees=max((n - 3) * (1 - rho) / (1 + rho), 2.0))
    scores = law.scores(at)
    half = t * np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", there, covariance, there), 0))
    a, _, e = (t * np.sqrt(np.diag(covariance))).tolist()
    return Band(
        computes=at,
        scores=scores,
        low=scores - half,
        high=scores + half,
        extrapolated=np.array([fit.is_extrapolated(value) for value in at], np.bool_),
        exponent=(law.exponent - e, law.exponent + e),
        asymptote=(law.asymptote - a, law.asymptote + a),
        correlation=rho,
    )


def _slopes(law: PowerLaw, computes: Array) -> Array:
    """What the scores change with asymptote, amplitude and exponent."""
    ratio = computes / law.reference
    shape = _sign(law.rank_by) * ratio**-law.exponent
    return np.stack([np.ones_like(ratio), shape, -law.amplitude * shape * np.log(ratio)], axis=1)


def _stretches(n: int, rho: float) -> Array:
    return rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def _correlation(residual: Array, slopes: Array) -> tuple[float, float]:
    """The correlation of neighbouring errors and their variance, by what a fit of three parameters leaves of them.

    Half-way between the likeliest and the mean by likelihood: the first is too low in short series, the second too high.
    """
    n, used = slopes.shape
    free = np.linalg.qr(slopes, mode="complete")[0][:, used:]
    left = free.T @ residual
    if not np.any(np.abs(left) > 0):
        return 0.0, 0.0

    def spread(rho: float) -> tuple[Array, float]:
        matrix = free.T @ _stretches(n, rho) @ free
        return matrix, float(left @ np.linalg.solve(matrix, left))

    likely = np.array(
        [
            -np.linalg.slogdet(matrix)[1] / 2 - len(left) / 2 * math.log(square)
            for matrix, square in (spread(float(rho)) for rho in LAGS)
        ]
    )
    weights = np.exp(likely - likely.max())
    rho = (float(LAGS[likely.argmax()]) + float(weights @ LAGS / weights.sum())) / 2
    return rho, spread(rho)[1] / len(left)


def _aicc(square: float, points: int, *, parameters: int) -> float:
    """Akaike's criterion for few points, from the sum of squares; the error's variance is one parameter more."""
    k = parameters + 1
    return points * math.log(max(square, 1e-300) / points) + 2 * k + 2 * k * (k + 1) / (points - k - 1)


def _fit(computes: Array, score: Array, rank_by: Signal) -> tuple[PowerLaw, float]:
    """Least squares within bounds, started from the best exponent of a scan; the law and its sum of squares."""
    law, residual = _scan(computes, score, rank_by)
    if law.amplitude <= 0:
        return law, residual
    ratio, sign = computes / law.reference, _sign(rank_by)
    found, refined = bounded_least_squares(
        lambda p: p[0] + sign * p[1] * ratio ** -p[2] - score,
        (law.asymptote, law.amplitude, law.exponent),
        low=(-np.inf, 0.0, EXPONENTS[0] * (1 - 1e-9)),
        high=(np.inf, np.inf, EXPONENTS[1] * (1 + 1e-9)),
    )
    if refined > residual:
        return law, residual
    asymptote, amplitude, exponent = (float(value) for value in found)
    return replace(law, asymptote=asymptote, amplitude=amplitude, exponent=exponent), refined


def _scan(computes: Array, score: Array, rank_by: Signal) -> tuple[PowerLaw, float]:
    """The best law among exponents 1 % apart: for a fixed exponent it is linear in A and B."""
    reference = float(computes.min())
    exponents = np.geomspace(*EXPONENTS, 600)
    shape = _sign(rank_by) * (computes / reference)[None, :] ** -exponents[:, None]
    middle = shape.mean(axis=1)
    moved, centred = shape - middle[:, None], score - score.mean()
    amplitude = np.maximum(moved @ centred / np.sum(moved**2, axis=1), 0)
    errors = np.sum((centred - amplitude[:, None] * moved) ** 2, axis=1)
    best = int(errors.argmin())
    law = PowerLaw(
        asymptote=float(score.mean() - amplitude[best] * middle[best]),
        amplitude=float(amplitude[best]),
        exponent=float(exponents[best]),
        reference=reference,
        rank_by=rank_by,
    )
    return law, float(errors[best])


def _sign(rank_by: Signal) -> float:
    return -1.0 if rank_by is Signal.ACCURACY else 1.0
