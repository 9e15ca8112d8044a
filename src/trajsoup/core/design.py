"""Which recipes to branch with, from short probes of each: distances in loss, not in weights (sec:discussion).

    losses of probes and of their midpoints, by document -> gaps of all pairs -> decorrelation, usefulness of a recipe
    gaps of all pairs -> the N recipes whose soup is promised the largest gain over the best of them

Every probe reads the baseline's data order, so a recipe's gap is the recipe's own; one more, the replicate, is the
baseline in another order. What a recipe's gap to the replicate has more than its gap to the baseline is noise of the data
that the two orders do not share: rho = 1 - gap_same / gap_other. With one factor of such noise, two recipes that both get
an order of their own gain e_i e_j / e_0 between them, e = gap_other - gap_same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.errors import TheoryError

Array = NDArray[np.float64]
DRAWS = 400
MOST_SETS = 200_000
BASELINE, REPLICATE = 0, 1  # places among the probes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeScores:
    """Sums of loss by document: of every probe, the baseline first and the replicate second, and of every midpoint."""

    names: tuple[str, ...]
    ends: Array  # probes x documents
    midpoints: Mapping[tuple[int, int], Array]  # of the pair (i, j), i < j
    targets: Array  # predicted tokens of each document

    def __post_init__(self) -> None:
        for pair in itertools.combinations(range(len(self.names)), 2):
            if pair not in self.midpoints:
                raise TheoryError(f"the midpoint of probes {pair[0]} and {pair[1]} was not scored: score every pair")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Losses of probes above the baseline's and gaps of pairs, on all documents or in one draw of them."""

    losses: Array  # relative to the baseline; the replicate's is that of the same recipe: 0
    same: Array  # gap of pairs, as probed; with the replicate, as between two orders

    @property
    def other(self) -> Array:
        """Gap of every recipe to the baseline in another order."""
        found = self.same[:, REPLICATE].copy()
        found[REPLICATE] = self.same[BASELINE, REPLICATE]
        return found

    @property
    def decorrelation(self) -> Array:
        """rho = 1 - gap_same / gap_other: 1 where all noise of the data is shared, 0 where the recipe shares none."""
        other = self.other
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(other > 0, 1 - self.same[:, BASELINE] / other, np.nan)
        found[REPLICATE] = 0.0
        return found

    @property
    def usefulness(self) -> Array:
        """gap - 1/2 |L - L_0|: what the midpoint with the baseline gains over the better of the two."""
        return self.same[:, BASELINE] - np.abs(self.losses) / 2

    def apart(self) -> Array:
        """Gaps of pairs when every recipe reads an order of its own."""
        shared = np.maximum(self.other - self.same[:, BASELINE], 0.0)
        shared[REPLICATE] = 0.0
        whole = self.same[BASELINE, REPLICATE]
        if whole <= 0:
            return self.same
        more = np.outer(shared, shared) / whole
        np.fill_diagonal(more, 0.0)
        return self.same + more


def gaps_of(scores: ProbeScores, weights: Array | None = None) -> Gaps:
    """Losses and gaps, with documents as they are or weighted."""
    w = np.ones(len(scores.targets)) if weights is None else weights
    total = float(w @ scores.targets)
    losses = scores.ends @ w / total
    n = len(losses)
    same = np.zeros((n, n))
    for (i, j), middle in scores.midpoints.items():
        same[i, j] = same[j, i] = (losses[i] + losses[j]) / 2 - float(middle @ w) / total
    above = losses - losses[BASELINE]
    above[REPLICATE] = 0.0
    return Gaps(losses=above, same=same)


def drawn_gaps(scores: ProbeScores, *, draws: int = DRAWS, seed: int = 0) -> list[Gaps]:
    """The same on documents drawn anew (Bayesian bootstrap)."""
    random = np.random.default_rng(seed)
    return [gaps_of(scores, random.exponential(size=len(scores.targets))) for _ in range(draws)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Recipes to pick from, each with an order of its own; the baseline first, then copies of it in other orders."""

    places: tuple[int, ...]  # of the probe that stands for each
    losses: Array
    gaps: Array


def pool_of(gaps: Gaps, *, n_branches: int, allowed: Sequence[int]) -> Pool:
    """The baseline, as many other orders of it as could be wanted, and the `allowed` recipes."""
    places = (BASELINE, *(REPLICATE for _ in range(n_branches - 1)), *allowed)
    table = gaps.apart()[np.ix_(places, places)]
    copies = range(1, n_branches)
    for i, j in itertools.permutations(copies, 2):
        table[i, j] = gaps.same[BASELINE, REPLICATE]
    return Pool(places=places, losses=gaps.losses[list(places)], gaps=table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A set of recipes and what its soup is promised to gain over the best of them, at the probe's length."""

    members: tuple[int, ...]  # places in the pool
    gain: float


def candidate_sets(pool: Pool, *, n_branches: int) -> NDArray[np.int64]:
    """Every set of N with the baseline. Copies of it are alike, so only the first so many are taken."""
    copies = [i for i, place in enumerate(pool.places) if place == REPLICATE]
    rest = range(1, len(pool.places))
    if math.comb(len(rest), n_branches - 1) > MOST_SETS:
        raise TheoryError(
            f"{len(rest)} recipes give {math.comb(len(rest), n_branches - 1):,} sets of {n_branches}: probe fewer, or "
            "branch into fewer"
        )
    sets = [
        (0, *others)
        for others in itertools.combinations(rest, n_branches - 1)
        if (taken := sorted(set(others) & set(copies))) == copies[: len(taken)]
    ]
    return np.array(sets, np.int64)


def set_gains(pool: Pool, sets: NDArray[np.int64]) -> Array:
    """For each set: the least loss of its members minus that of their mean, L(S) = mean L - 4/N^2 sum of gaps."""
    n = sets.shape[1]
    losses = pool.losses[sets]
    pairs = np.zeros(len(sets))
    for i, j in itertools.combinations(range(n), 2):
        pairs += pool.gaps[sets[:, i], sets[:, j]]
    return losses.min(axis=1) - losses.mean(axis=1) + 4 / n**2 * pairs


def best_set(pool: Pool, *, n_branches: int) -> Pick:
    """The set of the largest promised gain; ties go to more orders of the baseline, which come first."""
    sets = candidate_sets(pool, n_branches=n_branches)
    gains = set_gains(pool, sets)
    best = int(np.argmax(gains))
    return Pick(members=tuple(sets[best].tolist()), gain=float(gains[best]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sureness:
    """How a pick fares on documents drawn anew."""

    same: float  # share of draws that pick the same recipes
    gain_low: float  # of the picked set, 95 %
    gain_high: float
    over_orders: float  # what it is promised beyond N orders of the baseline
    over_orders_low: float
    over_orders_high: float


def sureness(picked: Pick, gaps: Gaps, draws: Sequence[Gaps], *, n_branches: int, allowed: Sequence[int]) -> Sureness:
    """Pick again in every draw, and follow the picked set and the plain one, N orders of the baseline."""
    pools = [pool_of(one, n_branches=n_branches, allowed=allowed) for one in (gaps, *draws)]
    sets = candidate_sets(pools[0], n_branches=n_branches)
    mine = int(np.flatnonzero((sets == np.array(picked.members)).all(axis=1))[0])
    plain = 0  # the copies come first
    gains: NDArray[np.float64] = np.array([set_gains(pool, sets) for pool in pools])
    drawn = gains[1:]
    low, high = np.percentile(drawn[:, mine], [2.5, 97.5]).tolist()
    beyond = drawn[:, mine] - drawn[:, plain]
    beyond_low, beyond_high = np.percentile(beyond, [2.5, 97.5]).tolist()
    return Sureness(
        same=float(np.count_nonzero(drawn.argmax(axis=1) == mine) / len(drawn)),
        gain_low=low,
        gain_high=high,
        over_orders=float(gains[0, mine] - gains[0, plain]),
        over_orders_low=beyond_low,
        over_orders_high=beyond_high,
    )
