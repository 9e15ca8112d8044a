"""From test scores to what is said about them: evaluations with intervals, paired comparisons.

rows (chosen on validation) -> test scores -> estimates with intervals -> comparisons
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from trajsoup.core.scores import Scores, TestScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.statistics import LEVEL, Comparison, compare_losses, compare_tasks, paired_bootstrap
from trajsoup.study.file.lm_eval import left_out
from trajsoup.study.records.results import (
    ComparisonRecord,
    ComparisonsRecord,
    Estimate,
    Evaluation,
    EvaluationsRecord,
    RowRecord,
    RowsRecord,
    Split,
)
from trajsoup.study.stages.ties import column_ties
from trajsoup.study.workbench import Workbench

SINGLE, LIMITED, EXTENDED = "single-merge", "trajectory-soup/limited", "trajectory-soup/extended"
ALONE = "single/"  # rows of one branch each: no strategies, so no part of the main table
QUESTIONS = (  # name, model, reference, question, what is matched
    ("soup-limited", LIMITED, SINGLE, "Does the soup beat the best single merge of the same token budget?", "budget"),
    ("soup-extended", EXTENDED, SINGLE, "Does the soup of full branches beat the best single merge?", "horizon"),
    ("merge", SINGLE, "raw-best", "Does merging one trajectory beat its best checkpoint?", "budget"),
    ("model-soup-limited", LIMITED, "model-soup/limited", "Top-K of each branch or final checkpoints?", "budget"),
    ("model-soup-extended", EXTENDED, "model-soup/extended", "Top-K of each branch or final checkpoints?", "horizon"),
    ("full-soup-limited", LIMITED, "full-soup/limited", "Top-K of each branch or all checkpoints?", "budget"),
    ("full-soup-extended", EXTENDED, "full-soup/extended", "Top-K of each branch or all checkpoints?", "horizon"),
    ("extension", EXTENDED, LIMITED, "What does running every branch to its end add?", "nothing: more tokens"),
)


def evaluations_stage(bench: Workbench, *, also: Callable[[], Sequence[Row]] = tuple) -> bool:
    """Score the chosen rows on test, once; with them, in the same read, what other stages will ask for."""
    records = bench.records
    inputs = {"rows": records.digest("rows")}

    def make() -> EvaluationsRecord:
        rows: RowsRecord = records.require("rows")
        scores = bench.scorer.test([*(row_of(row) for row in rows.rows), *also()])
        seeds = () if bench.setup.seed is None else (bench.setup.seed,)
        return EvaluationsRecord(
            inputs=inputs,
            evaluations=tuple(
                evaluation(row.name, scores[row.name], seeds=seeds, resamples=bench.setup.evaluation.resamples)
                for row in rows.rows
            ),
            notes=left_out(bench.setup.evaluation.lm_eval),
        )

    return records.ensure("evaluations", inputs, make)


def comparisons_stage(bench: Workbench) -> bool:
    """Compare pairs of rows on the same test documents and items."""
    records = bench.records
    inputs = {"rows": records.digest("rows"), "evaluations": records.digest("evaluations")}

    def make() -> ComparisonsRecord:
        rows: dict[str, RowRecord] = {row.name: row for row in records.require("rows").rows}
        scores = bench.scorer.test([row_of(row) for row in rows.values()])  # known already: read from their records
        resamples = bench.setup.evaluation.resamples
        found: list[ComparisonRecord] = []
        for name, model, reference, question, matched in QUESTIONS:
            if model in rows and reference in rows:
                budget = f"{matched}: {rows[model].budget_tokens:,} and {rows[reference].budget_tokens:,} tokens"
                found += compared(
                    name, model, reference, scores[model], scores[reference], question, budget, resamples=resamples
                )
        listed = {name: scores[name] for name in rows if not name.startswith(ALONE)}
        return ComparisonsRecord(
            inputs=inputs,
            level=LEVEL,
            resamples=resamples,
            comparisons=tuple(found),
            ties=column_ties(listed, resamples=resamples),
        )

    return records.ensure("comparisons", inputs, make)


def evaluation(name: str, scores: TestScores, *, seeds: tuple[int, ...], resamples: int) -> Evaluation:
    """Test scores with intervals."""
    assert scores.losses is not None
    return Evaluation(
        row=name,
        split=Split.TEST,
        loss=loss_estimate(scores, resamples=resamples),
        overall_average=accuracy_estimate(scores, resamples=resamples),
        categories=scores.category_means,
        tasks={task.name: task.accuracy for task in scores.tasks},
        sources=scores.losses.by_source(),
        seeds=seeds,
    )


def loss_estimate(scores: Scores, *, resamples: int) -> Estimate:
    """The loss with its bootstrap interval over documents."""
    assert scores.losses is not None
    found = paired_bootstrap(
        [scores.losses.nll], weights=[scores.losses.measure()], signal=Signal.LOSS, resamples=resamples
    )
    return _estimate(found)


def accuracy_estimate(scores: Scores, *, resamples: int) -> Estimate | None:
    """The Overall Average with its bootstrap interval over items."""
    if not scores.tasks:
        return None
    return _estimate(
        paired_bootstrap([task.correct for task in scores.tasks], signal=Signal.ACCURACY, resamples=resamples)
    )


def compared(
    name: str,
    model: str,
    reference: str,
    mine: TestScores,
    theirs: TestScores,
    question: str,
    matched: str,
    *,
    resamples: int,
) -> list[ComparisonRecord]:
    """The paired differences in loss and, if tasks were scored, in Overall Average."""
    found: list[ComparisonRecord] = []
    if mine.losses is not None and theirs.losses is not None:
        result = compare_losses(mine.losses, theirs.losses, resamples=resamples)
        found.append(_comparison(name, model, reference, result, Signal.LOSS, question, matched))
    if mine.tasks and theirs.tasks:
        result = compare_tasks(mine.tasks, theirs.tasks, resamples=resamples)
        found.append(_comparison(name, model, reference, result, Signal.ACCURACY, question, matched))
    return found


def row_of(record: RowRecord) -> Row:
    """The row of W of a record."""
    return Row(name=record.name, weights=record.weights)


def finite(value: float | None) -> float | None:
    """The value, or None where it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def _estimate(found: Comparison) -> Estimate:
    return Estimate(value=finite(found.difference), low=finite(found.low), high=finite(found.high), count=found.count)


def _comparison(
    name: str, model: str, reference: str, result: Comparison, signal: Signal, question: str, matched: str
) -> ComparisonRecord:
    return ComparisonRecord(
        name=name,
        question=question,
        model=model,
        reference=reference,
        signal=signal,
        split=Split.TEST,
        difference=finite(result.difference),
        low=finite(result.low),
        high=finite(result.high),
        probability_of_improvement=finite(result.probability_of_improvement),
        within_noise=result.within_noise,
        count=result.count,
        matched=matched,
    )
