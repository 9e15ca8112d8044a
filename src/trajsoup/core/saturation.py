"""Has a run levelled off? What its second half still brought, beyond the noise of its losses (fig:midtraining-saturation)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FLAT = 0.002  # nats that the second half of a saturated run may still bring
FEWEST = 8  # scored checkpoints: fewer tell nothing
SMOOTHED = 3  # neighbours in one mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """What the second half of a run brought."""

    gain: float  # nats: the best mean of neighbours by half of the tokens, minus the best by the end
    noise: float  # two standard errors of such a difference
    per_tenth: float  # what 10 % more tokens would take off, by the slope over log tokens of the second half

    @property
    def saturated(self) -> bool:
        """Whether that is nothing that shows."""
        return self.gain <= max(FLAT, self.noise)


def saturation(curve: Sequence[tuple[float, float]]) -> Saturation | None:
    """Of (tokens, loss) in any order; None where too few were scored to tell."""
    line = sorted((x, y) for x, y in curve if math.isfinite(y))
    if len(line) < FEWEST:
        return None
    x, y = np.array([t for t, _ in line]), np.array([loss for _, loss in line])
    means = np.convolve(y, np.ones(SMOOTHED) / SMOOTHED, mode="valid")
    ends = x[SMOOTHED - 1 :]
    early = ends <= x[-1] / 2
    if not early.any():
        return None
    bends = [(a - 2 * b + c) ** 2 for (a, b), (_, c) in itertools.pairwise(itertools.pairwise(y.tolist()))]
    noise = 2 * math.sqrt(2 * math.fsum(bends) / len(bends) / 6 / SMOOTHED)  # a steady fall is no noise
    late = x > x[-1] / 2
    slope = float(np.polyfit(np.log(x[late]), y[late], 1)[0]) if late.sum() > 1 else 0.0
    return Saturation(gain=float(means[early].min() - means.min()), noise=noise, per_tenth=-slope * math.log(1.1))
