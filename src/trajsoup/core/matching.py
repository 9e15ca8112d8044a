"""Is the identity the best matching of neurons between two models? (weight matching, Ainsworth 2023)

A hidden unit is the row of numbers that lead into it and out of it. Permuting units changes no output, so models that were
trained apart hold like units in unlike places; branches of one fork point keep theirs. The best matching is an assignment
problem over inner products of units; that of a seeded sample of units is one too, and cheap whatever the width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.numerics import best_assignment

ONE_FORK_POINT = 0.5  # share of units that match themselves; branches have nearly all, strangers 1 in the sample
UNITS = 512  # of a block, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """How many of the sampled units match best with themselves."""

    matched: int
    units: int
    blocks: int  # MLPs, experts and attention layers that they were sampled from

    @property
    def share(self) -> float:
        """Of all sampled units."""
        return self.matched / self.units

    @property
    def is_identity(self) -> bool:
        """Whether the two can share a fork point."""
        return self.share >= ONE_FORK_POINT

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.units:,} sampled units in {self.blocks} blocks match best with themselves"


def sampled_units(count: int, *, seed: int = 0) -> NDArray[np.int64]:
    """All units of a block, or a sample of a large one: the same in both models, or the identity could not be seen."""
    if count <= UNITS:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, count]).choice(count, UNITS, replace=False))


def matched_units(first: NDArray[np.floating], second: NDArray[np.floating]) -> int:
    """How many rows of `first` the best assignment to rows of `second` leaves in their places."""
    found = best_assignment(first @ second.T)
    return int(np.count_nonzero(found == np.arange(len(found))))
