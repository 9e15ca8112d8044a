"""How sure is a difference? Paired bootstrap, spread over seeds, optimism of selection, agreement of rankings.

Two models are compared on the same documents or items, so what makes one document harder than another cancels. A
resample draws documents with replacement; items are drawn within their configuration, since the Overall Average is a
mean over configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.numerics import ranks, t_quantile
from trajsoup.core.scores import DocumentLosses, Per, TaskResult, TestScores, ValidationScores
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
    probability_of_improvement: float  # share of resamples in which the model is better; ties count half
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
    if len(model.nll) != len(reference.nll) or not np.array_equal(model.targets, reference.targets):
        raise ScoreError(
            f"the two models were scored on different documents ({len(model.nll):,} and {len(reference.nll):,}): "
            "score both on one corpus with the same settings"
        )
    weights = model.measure(per=per, source_weights=source_weights)
    difference = (model.nll - reference.nll) * model.emphasis(source_weights)
    used = weights > 0
    return paired_bootstrap(
        [difference[used]], weights=[weights[used]], signal=Signal.LOSS, resamples=resamples, level=level, seed=seed
    )


def compare_tasks(
    model: Sequence[TaskResult],
    reference: Sequence[TaskResult],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Comparison:
    """Compare two Overall Averages over the same items."""
    names = [task.name for task in model]
    if names != [task.name for task in reference]:
        raise ScoreError("the two models were scored on different configurations: score both with one suite")
    for mine, theirs in zip(model, reference, strict=True):
        if len(mine.correct) != len(theirs.correct):
            counts = f"{len(mine.correct):,} and {len(theirs.correct):,}"
            raise ScoreError(f"configuration {mine.name!r} has {counts} items: score both models with one suite")
    strata = [mine.correct - theirs.correct for mine, theirs in zip(model, reference, strict=True)]
    return paired_bootstrap(strata, signal=Signal.ACCURACY, resamples=resamples, level=level, seed=seed)


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

    The interval is the percentile interval. A NaN in the differences gives a NaN interval, never a claim.
    """
    if not differences or any(len(part) == 0 for part in differences):
        raise ScoreError("nothing to compare: no document or item is shared by the two models")
    sizes = weights if weights is not None else [np.ones(len(part)) for part in differences]
    random = np.random.default_rng(seed)
    drawn = np.zeros(resamples)
    observed = 0.0
    for part, size in zip(differences, sizes, strict=True):
        observed += float(part.sum() / size.sum())
        drawn += _ratios(part, size, resamples=resamples, random=random)
    observed /= len(differences)
    drawn /= len(differences)
    sign = -1.0 if signal is Signal.LOSS else 1.0
    tail = (1 - level) / 2
    low, high = np.percentile(drawn, [100 * tail, 100 - 100 * tail]).tolist()
    better_share = np.count_nonzero(sign * drawn > 0) + np.count_nonzero(drawn == 0) / 2
    improved = better_share / resamples
    if not np.isfinite(drawn).all():
        low = high = improved = float("nan")
    return Comparison(
        difference=observed,
        low=low,
        high=high,
        probability_of_improvement=improved,
        signal=signal,
        count=sum(len(part) for part in differences),
        resamples=resamples,
        level=level,
    )


def _ratios(
    part: NDArray[np.float64], size: NDArray[np.float64], *, resamples: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """sum(part) / sum(size) over each resample. One gather fetches both: they travel as a complex number."""
    pair = part + 1j * size
    count = len(pair)
    step = max(DRAWN_AT_ONCE // count, 1)
    found = np.empty(resamples)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        sums = pair[random.integers(0, count, (rows, count))].sum(axis=1)
        found[start : start + rows] = sums.real / sums.imag
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
    """How much the split that chose the winner flatters it."""

    validation: float
    test: float
    reference_gap: float | None  # the same difference of a model that was not chosen by validation, if there is one

    @property
    def gap(self) -> float:
        """Validation minus test of the winner. Also holds how much harder one split is than the other."""
        return self.validation - self.test

    @property
    def beyond_reference(self) -> float | None:
        """The gap with the difficulty of the splits taken out."""
        return None if self.reference_gap is None else self.gap - self.reference_gap


def optimism(
    winner: tuple[ValidationScores, TestScores],
    *,
    reference: tuple[ValidationScores, TestScores] | None = None,
    per: Per = Per.TOKEN,
) -> Optimism:
    """Validation loss minus test loss of the winner, beside that of a model fixed in advance."""
    validation, test = (_loss(scores, per) for scores in winner)
    gap = None if reference is None else _loss(reference[0], per) - _loss(reference[1], per)
    return Optimism(validation=validation, test=test, reference_gap=gap)


def _loss(scores: ValidationScores | TestScores, per: Per) -> float:
    if scores.losses is None:
        raise ScoreError("the winner has no loss on one of the splits: score it on both")
    return scores.losses.loss(per=per)


def ranking_agreement(losses: Sequence[float], accuracies: Sequence[float]) -> float | None:
    """Spearman's correlation of "lower loss" with "higher accuracy": 1 where the two rankings agree.

    None where fewer than three models have both, or where one of the signals is the same for all.
    """
    pairs = np.array([pair for pair in zip(losses, accuracies, strict=True) if np.isfinite(pair).all()])
    if len(pairs) < 3 or np.ptp(pairs[:, 0]) == 0 or np.ptp(pairs[:, 1]) == 0:
        return None
    return float(np.corrcoef(ranks(-pairs[:, 0]), ranks(pairs[:, 1]))[0, 1])
