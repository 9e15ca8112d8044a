"""Numbers with intervals: scores of one model, and paired differences of two on the same documents and items."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from trajsoup.core.scores import FEWEST, Scores, TestScores, by_unit
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.core.statistics import Comparison, compare_losses, compare_tasks, paired_bootstrap
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.rows import RowRecord


def loss_estimate(scores: Scores, *, resamples: int) -> Estimate:
    """The loss with its bootstrap interval over documents."""
    assert scores.losses is not None
    found = paired_bootstrap(
        [scores.losses.nll], weights=[scores.losses.measure()], signal=Signal.LOSS, resamples=resamples
    )
    return _estimate(found if scores.losses.effective_documents >= FEWEST else without_interval(found))


def accuracy_estimate(scores: Scores, *, resamples: int) -> Estimate | None:
    """The Overall Average with its bootstrap interval over items."""
    if not scores.tasks:
        return None
    sums, counts = by_unit(scores.tasks, [task.correct for task in scores.tasks])
    return _estimate(paired_bootstrap(sums, weights=counts, signal=Signal.ACCURACY, resamples=resamples))


def answer_estimate(scores: Scores, *, resamples: int) -> Estimate | None:
    """The loss of right answers, a mean over configurations as the Overall Average is, with its interval over items."""
    known = [task.answer_loss for task in scores.tasks if task.answer_loss is not None]
    if not known or len(known) < len(scores.tasks):
        return None
    sums, counts = by_unit(scores.tasks, known)
    return _estimate(paired_bootstrap(sums, weights=counts, signal=Signal.LOSS, resamples=resamples))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A comparison to make, model minus reference."""

    name: str
    model: str  # names of rows
    reference: str
    question: str  # in words
    matched: str  # what both sides share


def compared(
    asked: Question, mine: TestScores, theirs: TestScores, *, label: str, resamples: int
) -> list[ComparisonRecord]:
    """The paired differences in loss and, if tasks were scored, in Overall Average."""
    found: list[ComparisonRecord] = []
    kept = (mine.kept, theirs.kept)
    if mine.losses is not None and theirs.losses is not None:
        result = compare_losses(mine.losses, theirs.losses, resamples=resamples)
        if mine.losses.effective_documents < FEWEST:
            result = without_interval(result)
        found.append(_comparison(asked, result, kept, label))
    if mine.tasks and theirs.tasks:
        found.append(_comparison(asked, compare_tasks(mine.tasks, theirs.tasks, resamples=resamples), kept, label))
    return found


def without_interval(found: Comparison) -> Comparison:
    """The difference alone."""
    nothing = float("nan")
    return replace(found, low=nothing, high=nothing, p=nothing, resamples_better=nothing)


def row_of(record: RowRecord) -> Row:
    """The row of W of a record."""
    return Row(name=record.name, weights=record.weights, groups=record.groups)


def finite(value: float | None) -> float | None:
    """The value, or None where it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def _estimate(found: Comparison) -> Estimate:
    return Estimate(value=finite(found.difference), low=finite(found.low), high=finite(found.high), count=found.count)


def _comparison(
    asked: Question, result: Comparison, kept: tuple[tuple[str, ...], tuple[str, ...]], label: str
) -> ComparisonRecord:
    return ComparisonRecord(
        **asdict(asked),
        signal=result.signal,
        split=Split.TEST,
        difference=finite(result.difference),
        low=finite(result.low),
        high=finite(result.high),
        p=finite(result.p),
        resamples_better=finite(result.resamples_better),
        count=result.count,
        label=label,
        kept=kept,
    )
