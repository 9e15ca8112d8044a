"""Scaling laws of score against compute (eq:accuracy-power-law, app:scaling-fit).

    points (compute, score) -> fit within bounds -> law, R^2, intervals by bootstrap -> scores, also beyond the range

For accuracy S(C) = A - B (C / C0)^-alpha; for loss the same shape falling, A + B (C / C0)^-alpha; B > 0, alpha > 0. C0
is the compute of the first fitted point. A curve that no such law describes comes back without one, and says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajsoup.core.numerics import bounded_least_squares
from trajsoup.core.signal import Signal
from trajsoup.errors import ScalingError

Array = NDArray[np.float64]
EXPONENTS = (0.01, 5.0)  # below, the law is a logarithm whose asymptote means nothing; above, a step
LEAST_POINTS = 4  # three parameters, and one point to contradict them


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
    """A fitted curve with its bootstrap band."""

    computes: Array
    scores: Array
    low: Array
    high: Array
    extrapolated: NDArray[np.bool_]
    exponent: tuple[float, float]
    asymptote: tuple[float, float]
    refits: int  # resamples on which a law could be fitted


def fit_power_law(points: Sequence[tuple[float, float]], *, rank_by: Signal = Signal.ACCURACY) -> ScalingFit:
    """Fit A, B >= 0 and alpha by least squares to points (compute, score), in any order."""
    ordered = sorted(points)
    computes, measured = tuple(c for c, _ in ordered), tuple(s for _, s in ordered)
    if any(not math.isfinite(value) for point in ordered for value in point) or any(c <= 0 for c in computes):
        raise ScalingError("every point needs a positive compute and a finite score: drop the ones that have none")

    def without(reason: str) -> ScalingFit:
        return ScalingFit(computes=computes, measured=measured, rank_by=rank_by, missing=reason)

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
        warning=warning,
    )


def bootstrap_band(
    fit: ScalingFit, *, computes: Sequence[float], resamples: int = 1000, seed: int = 0, level: float = 0.95
) -> Band:
    """Resample the residuals of the fit, refit, and take percentiles of curve and parameters.

    Residuals, not points: ten points drawn with replacement leave too few different computes for three parameters.
    Residuals are swollen by sqrt(n / (n - 3)) for the three parameters that shrank them.
    """
    law = fit.require_law()
    c, at = np.array(fit.computes), np.asarray(computes, np.float64)
    centre = law.scores(c)
    n = len(c)
    residual = (np.array(fit.measured) - centre) * math.sqrt(n / (n - 3))
    residual -= residual.mean()
    rng = np.random.default_rng(seed)
    curves: list[Array] = []
    parameters: list[tuple[float, float]] = []
    for _ in range(resamples):
        again, _ = _scan(c, centre + rng.choice(residual, n), fit.rank_by)
        if again.amplitude > 0:
            curves.append(again.scores(at))
            parameters.append((again.exponent, again.asymptote))
    if not curves:
        raise ScalingError(f"none of {resamples} resamples gave a law: the scores are too noisy for these points")
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(np.array(curves), tails, axis=0)
    bounds = np.quantile(np.array(parameters), tails, axis=0)
    return Band(
        computes=at,
        scores=law.scores(at),
        low=low,
        high=high,
        extrapolated=np.array([fit.is_extrapolated(value) for value in at], np.bool_),
        exponent=(float(bounds[0, 0]), float(bounds[1, 0])),
        asymptote=(float(bounds[0, 1]), float(bounds[1, 1])),
        refits=len(curves),
    )


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
