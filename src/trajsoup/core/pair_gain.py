"""Does directional diversity predict the worth of merging a pair? (app:pair-geometry, fig:direction-gain)

    scores of ends and merges by horizon -> relative gain Delta_nn' -> its relation to the cosine c_nn'

A gain is positive when the merge improves on the mean of its ends, for accuracies and for losses alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.mantel import mantel
from trajsoup.core.numerics import ranks, t_quantile
from trajsoup.core.signal import Signal
from trajsoup.errors import GeometryError

BAND = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGain:
    """The relative gain of one pair of branches, averaged over horizons."""

    first: str
    second: str
    cosine: float  # of their directions
    gains: Mapping[int, float]  # tokens -> Delta at that horizon
    left_out: tuple[int, ...]  # horizons that not all three models have

    @property
    def gain(self) -> float:
        """The mean of Delta over the horizons."""
        return math.fsum(self.gains.values()) / len(self.gains)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Gain against cosine over all pairs. What too few pairs leave undefined is None, and `missing` says why."""

    pairs: int
    pearson: float | None = None
    pearson_p: float | None = None  # by permuting branches (mantel.py); None: not every pair was measured
    spearman: float | None = None
    spearman_p: float | None = None
    slope: float | None = None
    intercept: float | None = None
    residual_error: float | None = None  # standard error of a residual
    cosine_mean: float | None = None
    cosine_spread: float | None = None  # sum of squared deviations
    missing: str | None = None

    @property
    def p_words(self) -> str:
        """The p value of Pearson's correlation, and how it was found."""
        p = self.pearson_p
        return "no p: not every pair was measured" if p is None else f"p = {p:.2g} by permuting branches"

    def line(self, cosines: Sequence[float]) -> NDArray[np.float64]:
        """The OLS line at the given cosines, with its confidence band for the mean response: mean, low, high."""
        slope, intercept, error = self.slope, self.intercept, self.residual_error
        centre, spread = self.cosine_mean, self.cosine_spread
        if slope is None or intercept is None or error is None or centre is None or spread is None:
            raise GeometryError(f"there is no line through {self.pairs} pairs: {self.missing}")
        x = np.asarray(cosines, np.float64)
        mean = intercept + slope * x
        t = t_quantile((1 + BAND) / 2, degrees=self.pairs - 2)
        half = t * error * np.sqrt(1 / self.pairs + (x - centre) ** 2 / spread)
        return np.stack([mean, mean - half, mean + half])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOutlook:
    """What to expect of merging two branches, before merging them."""

    first: str
    second: str
    cosine: float
    gain: float | None = None  # expected, where gains were measured before
    low: float | None = None  # band of the line
    high: float | None = None


def rank_pairs(
    cosines: Mapping[tuple[str, str], float], *, relation: Relation | None = None
) -> tuple[PairOutlook, ...]:
    """Order pairs by what merging them promises, best first (sec:direction-gain).

    With a measured line, by its gain at their cosine. Without one, by the cosine: the paper found that the less two
    directions agree, the more their merge gains. Pairs without a direction are left out.
    """
    usable = {pair: cosine for pair, cosine in cosines.items() if math.isfinite(cosine)}
    if relation is None or relation.slope is None:
        found = [PairOutlook(first=a, second=b, cosine=cosine) for (a, b), cosine in usable.items()]
        return tuple(sorted(found, key=lambda pair: (pair.cosine, pair.first, pair.second)))
    mean, low, high = relation.line(list(usable.values()))
    found = [
        PairOutlook(first=a, second=b, cosine=cosine, gain=float(mean[i]), low=float(low[i]), high=float(high[i]))
        for i, ((a, b), cosine) in enumerate(usable.items())
    ]
    return tuple(sorted(found, key=lambda pair: (-(pair.gain or 0.0), pair.first, pair.second)))


def relation_words(relation: Relation) -> str:
    """How the pair gain goes with the cosine, in a sentence."""
    if relation.pearson is None or relation.spearman is None:
        return f"Pair gain against cosine: {relation.missing}."
    if relation.pearson_p is None or relation.pearson_p > 1 - BAND:
        how = "no relation that these pairs could show"
    elif relation.pearson < 0:
        how = "the less two directions agree, the more their merge gains"
    else:
        how = "the more two directions agree, the more their merge gains, against the paper"
    return (
        f"Pair gain against cosine over {relation.pairs} pairs: Pearson {relation.pearson:+.2f} ({relation.p_words}), "
        f"Spearman {relation.spearman:+.2f}: {how}."
    )


def pair_gain(
    merged: Mapping[int, float],
    *,
    ends: tuple[Mapping[int, float], Mapping[int, float]],
    branches: tuple[str, str],
    cosine: float,
    rank_by: Signal = Signal.ACCURACY,
) -> PairGain:
    """Delta_nn' = A_nn' - (A_n + A_n') / 2 at every horizon (tokens) that the merge and both ends share."""
    a, b = ends
    everything = merged.keys() | a.keys() | b.keys()
    shared = sorted(merged.keys() & a.keys() & b.keys())
    if not shared:
        raise GeometryError(
            f"{branches[0]} and {branches[1]} have no horizon at which both ends and their merge were scored: score "
            "them at matched tokens"
        )
    sign = 1 if rank_by is Signal.ACCURACY else -1
    gains = {tokens: sign * (merged[tokens] - (a[tokens] + b[tokens]) / 2) for tokens in shared}
    return PairGain(
        first=branches[0],
        second=branches[1],
        cosine=cosine,
        gains=gains,
        left_out=tuple(sorted(everything - set(shared))),
    )


def relate(pairs: Sequence[PairGain]) -> Relation:
    """Relate gain to cosine: Pearson, Spearman, their p values by permuting branches, and the least-squares line."""
    usable = [pair for pair in pairs if math.isfinite(pair.cosine) and math.isfinite(pair.gain)]
    n = len(usable)
    if n < 3:
        return Relation(pairs=n, missing=f"{n} pairs are too few for a relation: it needs three, so three branches")
    x, y = np.array([pair.cosine for pair in usable]), np.array([pair.gain for pair in usable])
    if np.ptp(x) == 0:
        return Relation(pairs=n, missing="all pairs have the same cosine, so nothing can depend on it")
    spread = float(np.sum((x - x.mean()) ** 2))
    slope = float((x - x.mean()) @ (y - y.mean())) / spread
    intercept = float(y.mean() - slope * x.mean())
    residual = y - intercept - slope * x
    line = Relation(
        pairs=n,
        slope=slope,
        intercept=intercept,
        residual_error=math.sqrt(float(residual @ residual) / (n - 2)),
        cosine_mean=float(x.mean()),
        cosine_spread=spread,
        missing="all pairs gain the same, so a correlation is not defined" if np.ptp(y) == 0 else None,
    )
    if line.missing is not None:
        return line
    names = [(pair.first, pair.second) for pair in usable]
    rank_x, rank_y = ranks(x), ranks(y)
    return replace(
        line,
        pearson=float(np.corrcoef(x, y)[0, 1]),
        pearson_p=mantel(names, x, y),
        spearman=float(np.corrcoef(rank_x, rank_y)[0, 1]),
        spearman_p=mantel(names, rank_x, rank_y),
    )
