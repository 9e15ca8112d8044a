"""How sure is a difference? Paired bootstrap, spread over seeds, optimism of selection, agreement of rankings.

Two models are compared on the same documents or items, so what makes one document harder than another cancels. A
resample draws documents with replacement; items are drawn within their configuration, since the Overall Average is a
mean over configurations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.numerics import ranks, t_quantile
from trajsoup.core.scores import DocumentLosses, Per, TaskResult, TestScores, ValidationScores, by_unit
from trajsoup.core.signal import Signal
from trajsoup.errors import ScoreError

RESAMPLES = 10_000
LEVEL = 0.95
DRAWN_AT_ONCE = 1 << 19  # indices in memory at a time: they should stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A difference, model minus reference, with its paired bootstrap interval."""

    difference: float
    low: float
    high: float
    p: float  # two-sided, of no difference: normal, with the error of the resamples, so that their number is no floor
    resamples_better: (
        float  # share of resamples in which the model is better, ties half: not the probability that it is
    )
    signal: Signal
    count: int  # documents or items
    resamples: int
    level: float

    @property
    def within_noise(self) -> bool:
        """Whether the interval holds zero, or is not known, so that no claim can be made."""
        return not (self.low > 0 or self.high < 0)


def compare_losses(
    model: DocumentLosses,
    reference: DocumentLosses,
    *,
    per: Per = Per.TOKEN,
    source_weights: Mapping[str, float] | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Comparison:
    """Compare two mean losses over the same documents."""
    difference, weights = paired_losses(model, reference, per=per, source_weights=source_weights)
    return paired_bootstrap(
        [difference], weights=[weights], signal=Signal.LOSS, resamples=resamples, level=level, seed=seed
    )


def paired_losses(
    model: DocumentLosses,
    reference: DocumentLosses,
    *,
    per: Per = Per.TOKEN,
    source_weights: Mapping[str, float] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By document: the difference of the two sums, and the document's weight. Their sums' ratio is the difference."""
    if len(model.nll) != len(reference.nll) or not np.array_equal(model.targets, reference.targets):
        raise ScoreError(
            f"the two models were scored on different documents ({len(model.nll):,} and {len(reference.nll):,}): "
            "score both on one corpus with the same settings"
        )
    weights = model.measure(per=per, source_weights=source_weights)
    difference = (model.nll - reference.nll) * model.emphasis(source_weights)
    used = weights > 0
    return difference[used], weights[used]


def compare_tasks(
    model: Sequence[TaskResult],
    reference: Sequence[TaskResult],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Comparison:
    """Compare two Overall Averages over the same items."""
    strata, weights = paired_tasks(model, reference)
    return paired_bootstrap(
        strata, weights=weights, signal=Signal.ACCURACY, resamples=resamples, level=level, seed=seed
    )


def paired_tasks(
    model: Sequence[TaskResult], reference: Sequence[TaskResult]
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """The differences and their numbers of items by unit, in strata (scores.by_unit)."""
    names = [task.name for task in model]
    if names != [task.name for task in reference]:
        raise ScoreError("the two models were scored on different configurations: score both with one suite")
    for mine, theirs in zip(model, reference, strict=True):
        if len(mine.correct) != len(theirs.correct):
            counts = f"{len(mine.correct):,} and {len(theirs.correct):,}"
            raise ScoreError(f"configuration {mine.name!r} has {counts} items: score both models with one suite")
    return by_unit(model, [mine.correct - theirs.correct for mine, theirs in zip(model, reference, strict=True)])


def paired_bootstrap(
    differences: Sequence[NDArray[np.float64]],
    *,
    signal: Signal,
    weights: Sequence[NDArray[np.float64]] | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Comparison:
    """Bootstrap the mean over strata of sum(difference) / sum(weight); without weights each counts one.

    A stratum may have rows: each has a ratio of its own in the mean, and what is drawn is columns, for all rows at once.
    The interval is the percentile interval. A NaN in the differences gives a NaN interval, never a claim.
    """
    observed, drawn = _drawn(differences, weights, resamples=resamples, seed=seed)
    sign = -1.0 if signal is Signal.LOSS else 1.0
    tail = (1 - level) / 2
    low, high = np.percentile(drawn, [100 * tail, 100 - 100 * tail]).tolist()
    better = (np.count_nonzero(sign * drawn > 0) + np.count_nonzero(drawn == 0) / 2) / resamples
    error = float(np.std(drawn))
    p = math.erfc(abs(observed) / error / math.sqrt(2)) if error > 0 else float(observed == 0)
    if not np.isfinite(drawn).all():
        low = high = better = p = float("nan")
    return Comparison(
        difference=observed,
        low=low,
        high=high,
        p=p,
        resamples_better=better,
        signal=signal,
        count=sum(part.shape[-1] for part in differences),
        resamples=resamples,
        level=level,
    )


def _drawn(
    differences: Sequence[NDArray[np.float64]],
    weights: Sequence[NDArray[np.float64]] | None,
    *,
    resamples: int,
    seed: int,
) -> tuple[float, NDArray[np.float64]]:
    """The mean over strata as observed, and in every resample."""
    if not differences or any(part.size == 0 for part in differences):
        raise ScoreError("nothing to compare: no document or item is shared by the two models")
    sizes = weights if weights is not None else [np.ones(part.shape) for part in differences]
    random = np.random.default_rng(seed)
    drawn = np.zeros(resamples)
    observed, ratios = 0.0, 0
    for part, size in zip(map(np.atleast_2d, differences), map(np.atleast_2d, sizes), strict=True):
        observed += float((part.sum(axis=1) / size.sum(axis=1)).sum())
        drawn += _ratios(part, size, resamples=resamples, random=random)
        ratios += len(part)
    return observed / ratios, drawn / ratios


def _ratios(
    part: NDArray[np.float64], size: NDArray[np.float64], *, resamples: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """sum(part) / sum(size) over each resample of columns, added over rows.

    One gather fetches both: they travel as a complex number. A row that a resample leaves empty keeps what was observed.
    """
    pair = part + 1j * size
    whole = part.sum(axis=1) / size.sum(axis=1)
    count = pair.shape[1]
    step = max(DRAWN_AT_ONCE // pair.size, 1)
    found = np.empty(resamples)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        sums = pair[:, random.integers(0, count, (rows, count))].sum(axis=2)
        ratios = np.broadcast_to(whole[:, None], sums.shape).copy()
        np.divide(sums.real, sums.imag, out=ratios, where=sums.imag != 0)
        found[start : start + rows] = ratios.sum(axis=0)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A value over seeds. With one seed there is a mean and nothing else."""

    mean: float
    count: int
    deviation: float | None  # sample standard deviation
    low: float | None  # t interval of the mean
    high: float | None


def spread_over_seeds(values: Sequence[float], *, level: float = LEVEL) -> Spread:
    """Summarise one number measured with several seeds."""
    if not values:
        raise ScoreError("no seed was run, so there is no spread: run at least one")
    mean = float(np.mean(values))
    if len(values) == 1:
        return Spread(mean=mean, count=1, deviation=None, low=None, high=None)
    deviation = float(np.std(values, ddof=1))
    half = t_quantile((1 + level) / 2, degrees=len(values) - 1) * deviation / len(values) ** 0.5
    return Spread(mean=mean, count=len(values), deviation=deviation, low=mean - half, high=mean + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimism:
    """How much the split that chose the winner flatters it, against a model that nothing chose."""

    validation: float  # losses of the winner
    test: float
    reference_gap: float  # validation minus test of the other: how much harder one split is than the other
    flattery: float  # what the winner loses of its lead from validation to test; below zero: it gained
    low: float | None  # bootstrap over the documents of both splits; None: a model diverged
    high: float | None


def optimism(
    winner: tuple[ValidationScores, TestScores],
    *,
    reference: tuple[ValidationScores, TestScores],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Optimism:
    """The winner minus the reference on test, less the same on validation; each split has documents of its own.

    It is not clipped: a choice that lost nothing comes out below zero as often as above.
    """
    losses = [(_losses(mine), _losses(theirs)) for mine, theirs in zip(winner, reference, strict=True)]
    parts = [paired_losses(mine, theirs) for mine, theirs in losses]
    (there, there_drawn), (here, here_drawn) = (
        _drawn([difference], [weights], resamples=resamples, seed=seed)
        for seed, (difference, weights) in enumerate(parts)
    )
    tail = 50 * (1 - level)
    low, high = np.percentile(here_drawn - there_drawn, [tail, 100 - tail]).tolist()
    known = bool(np.isfinite([low, high]).all())
    (mine_there, other_there), (mine_here, other_here) = ((a.loss(), b.loss()) for a, b in losses)
    return Optimism(
        validation=mine_there,
        test=mine_here,
        reference_gap=other_there - other_here,
        flattery=here - there,
        low=low if known else None,
        high=high if known else None,
    )


def _losses(scores: ValidationScores | TestScores) -> DocumentLosses:
    if scores.losses is None:
        raise ScoreError("a model has no loss on one of the splits: score it on both")
    return scores.losses


def ranking_agreement(losses: Sequence[float], accuracies: Sequence[float]) -> float | None:
    """Spearman's correlation of "lower loss" with "higher accuracy": 1 where the two rankings agree.

    None where fewer than three models have both, or where one of the signals is the same for all.
    """
    pairs = np.array([pair for pair in zip(losses, accuracies, strict=True) if np.isfinite(pair).all()])
    if len(pairs) < 3 or np.ptp(pairs[:, 0]) == 0 or np.ptp(pairs[:, 1]) == 0:
        return None
    return float(np.corrcoef(ranks(-pairs[:, 0]), ranks(pairs[:, 1]))[0, 1])
