"""Where the loss gap J of a branch is going: J at the horizon from its increments so far (sec:problem-formulation).

    J against tokens -> drift and jitter in log tokens -> J_T and how sure -> P(J_T > epsilon)

J is taken for a random walk with drift in log t, as losses are about straight there. The drift is drawn towards zero as
far as its own error allows, so that a few noisy increments promise nothing; the spread is Student's, of few increments.
Where J is now, the last few values say together, as they do for the screen: one checkpoint alone jumps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trajsoup.core.numerics import t_probability
from trajsoup.core.screening import SMOOTHED

FEWEST = 3  # values of J: two increments


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """J at a horizon, as far as it can be told."""

    expected: float
    error: float
    degrees: int  # of Student's t

    def above(self, tolerance: float) -> float:
        """P(J_T > epsilon)."""
        if self.error == 0:
            return float(self.expected > tolerance)
        return t_probability((self.expected - tolerance) / self.error, degrees=self.degrees)


def drift(gaps: Sequence[tuple[int, float]], *, horizon: int) -> Drift | None:
    """J at the horizon from J at earlier tokens; None where fewer than three finite values tell nothing."""
    path = sorted((tokens, gap) for tokens, gap in gaps if math.isfinite(gap) and 0 < tokens <= horizon)
    if len(path) < FEWEST:
        return None
    position = np.log([tokens for tokens, _ in path])
    value = np.array([gap for _, gap in path])
    steps, moves = np.diff(position), np.diff(value)
    rate = float(moves.sum() / steps.sum())
    degrees = len(steps) - 1
    jitter = float(np.sum((moves - rate * steps) ** 2 / steps)) / degrees  # variance for each unit of log t
    rate_error = jitter / float(steps.sum())  # its variance
    kept = max(1 - rate_error / rate**2, 0.0) if rate else 0.0
    left = math.log(horizon) - float(position[-1])
    since = math.log(horizon) - float(position[-SMOOTHED:].mean())
    return Drift(
        expected=float(value[-SMOOTHED:].mean()) + kept * rate * since,
        error=math.sqrt(jitter * left + rate_error * left**2),
        degrees=degrees,
    )
