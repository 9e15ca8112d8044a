"""Intervals for what is computed from losses: bootstrap over documents, jackknife over branches.

The two answer different questions. Documents: would other validation text have said the same of these models?
Branches: would other branches of the same kind have given the same?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.numerics import t_quantile
from trajsoup.errors import TheoryError

Array = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its interval at `level`."""

    estimate: float
    low: float
    high: float
    standard_error: float
    level: float = LEVEL


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossTable:
    """Losses of models on the same documents: what a paired bootstrap needs."""

    names: tuple[str, ...]
    losses: Array  # one line per model, one column per document: the mean loss of its tokens
    tokens: Array  # per document

    def mean(self, *, counts: Array | None = None) -> dict[str, float]:
        """Mean loss of every model per token; `counts` says how often each document is taken."""
        weight = self.tokens if counts is None else self.tokens * counts
        means = self.losses @ weight / weight.sum()
        return dict(zip(self.names, means.tolist(), strict=True))


Draws = Sequence[Mapping[str, float]]  # mean losses by model, once for each resample


def draw_documents(table: LossTable, *, resamples: int = 1000, seed: int = 0) -> Draws:
    """Mean losses on resampled documents, which are drawn for all models at once: gaps are paired."""
    documents = len(table.tokens)
    rng = np.random.default_rng(seed)
    draws = (rng.integers(0, documents, documents) for _ in range(resamples))
    return [table.mean(counts=np.bincount(drawn, minlength=documents).astype(np.float64)) for drawn in draws]


def document_bootstrap(
    table: LossTable,
    statistic: Callable[[Mapping[str, float]], float],
    *,
    draws: Draws | None = None,
    level: float = LEVEL,
) -> Interval:
    """Percentile interval of a statistic of mean losses; several statistics may share their `draws`.

    Resamples on which the statistic is undefined are left out.
    """
    documents = len(table.tokens)
    if documents < 2:
        raise TheoryError(f"{documents} document{'s' * (documents != 1)}: a bootstrap needs at least two")
    draws = draw_documents(table) if draws is None else draws
    found: list[float] = []
    for means in draws:
        try:
            value = statistic(means)
        except TheoryError:
            continue
        if math.isfinite(value):
            found.append(value)
    if len(found) < len(draws) / 2:
        raise TheoryError(
            f"the statistic is defined on {len(found)} of {len(draws)} resamples of {documents} documents: score "
            "more text"
        )
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(
        estimate=statistic(table.mean()),
        low=float(low),
        high=float(high),
        standard_error=float(np.std(found, ddof=1)),
        level=level,
    )


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
