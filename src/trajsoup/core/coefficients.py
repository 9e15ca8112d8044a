"""Weights of the selected checkpoints inside one branch, by rank j = 1..K (app:merge-coefficients)."""

from __future__ import annotations

import math
from enum import StrEnum


class Coefficients(StrEnum):
    """The paper's four schemes. j = 1 is the best checkpoint."""

    EQUAL = "equal"  # 1/K
    SQRT = "1sqrt"  # proportional to sqrt(j): towards lower-ranked members
    RANK = "rank"  # proportional to j: the same, steeper
    RSQRT = "rsqrt"  # proportional to 1/sqrt(j): towards the best


def coefficients(scheme: Coefficients, k: int) -> tuple[float, ...]:
    """Return w_1..w_K, summing to one."""
    match scheme:
        case Coefficients.EQUAL:
            raw = [1.0] * k
        case Coefficients.SQRT:
            raw = [math.sqrt(j) for j in range(1, k + 1)]
        case Coefficients.RANK:
            raw = [float(j) for j in range(1, k + 1)]
        case Coefficients.RSQRT:
            raw = [1 / math.sqrt(j) for j in range(1, k + 1)]
    total = math.fsum(raw)
    return tuple(value / total for value in raw)
