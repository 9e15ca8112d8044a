"""Intervals for what is computed from losses of soups: would other branches of the same kind have given the same?

Documents are not resampled: b, V_intra and V_inter describe branches, a handful of them, and how well those few were
measured says next to nothing of how far the next one lies from them (an interval over documents covers 12 to 31 %).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trajsoup.core.numerics import t_quantile
from trajsoup.errors import TheoryError

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its interval at `level`."""

    estimate: float
    low: float
    high: float
    standard_error: float
    level: float = LEVEL


def branch_jackknife(
    branches: Sequence[str], statistic: Callable[[tuple[str, ...]], float], *, level: float = LEVEL
) -> Interval:
    """Leave each branch out in turn; `statistic` gets the branches that remain. Student's t with N - 1 degrees."""
    n = len(branches)
    if n < 3:
        raise TheoryError(f"{n} branches: a jackknife needs at least three")
    whole = statistic(tuple(branches))
    parts = np.array([statistic(tuple(b for b in branches if b != left_out)) for left_out in branches])
    error = math.sqrt((n - 1) / n * float(np.sum((parts - parts.mean()) ** 2)))
    half = t_quantile((1 + level) / 2, degrees=n - 1) * error
    return Interval(estimate=whole, low=whole - half, high=whole + half, standard_error=error, level=level)
