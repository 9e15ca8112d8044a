"""Is a relation over pairs of branches more than chance? Mantel's test: branches are permuted, not pairs.

N branches make N (N - 1) / 2 pairs that share them, so pairs are not independent draws: p values that take them for such
call 18 % of chance relations certain at 5 %. Renaming the branches of one of the two quantities keeps what pairs share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

EXACT_BRANCHES = 7  # 5,040 permutations: up to here all are taken
SAMPLED = 10_000  # beyond
CHUNK = 5_000
ROUNDING = 1e-9  # correlations that differ by less are the same


def mantel(
    pairs: Sequence[tuple[str, str]], x: NDArray[np.float64], y: NDArray[np.float64], *, seed: int = 0
) -> float | None:
    """Two-sided p value of the correlation of x and y over all pairs of some branches; None where pairs are missing.

    The share of permutations of the branches under which the correlation is as far from zero; the one that was observed
    is one of them. Three branches cannot say less than 1 / 6.
    """
    names = sorted({name for pair in pairs for name in pair})
    n = len(names)
    if len({frozenset(pair) for pair in pairs}) < n * (n - 1) // 2 or n < 3:
        return None
    place = {name: i for i, name in enumerate(names)}
    first, second = (np.array([place[pair[side]] for pair in pairs]) for side in (0, 1))
    of = np.zeros((n, n))
    of[first, second] = of[second, first] = y - y.mean()
    centred = x - x.mean()
    far = abs(float(centred @ of[first, second])) - ROUNDING * float(np.linalg.norm(centred) * np.linalg.norm(of))
    if n <= EXACT_BRANCHES:
        every = np.array(list(itertools.permutations(range(n))))
        beyond, count = 0, math.factorial(n)
    else:
        every = np.random.default_rng(seed).permuted(np.tile(np.arange(n), (SAMPLED, 1)), axis=1)
        beyond, count = 1, SAMPLED + 1  # the observed one among them
    for start in range(0, len(every), CHUNK):
        some = every[start : start + CHUNK]
        beyond += int(np.count_nonzero(np.abs(of[some[:, first], some[:, second]] @ centred) >= far))
    return beyond / count
