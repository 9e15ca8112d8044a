"""The evaluations stage: the chosen rows on test, once, with intervals."""

from __future__ import annotations

from trajsoup.core.scores import TestScores
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.study.file.lm_eval import left_out
from trajsoup.study.records.evaluations import Evaluation, EvaluationsRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.stages.estimates import accuracy_estimate, answer_estimate, loss_estimate, row_of
from trajsoup.study.stages.protocol import protocol_fields
from trajsoup.study.stages.sweeps import choose_sweeps, reported_rows
from trajsoup.study.workbench import Workbench


def evaluations_stage(bench: Workbench) -> bool:
    """Score the chosen rows on test, once; in the same read, what sweeps will report, where they answer as many items."""
    records = bench.records
    inputs = {"rows": records.digest(RowsRecord)}

    def make() -> EvaluationsRecord:
        rows: RowsRecord = records.require(RowsRecord)
        sweeps = bench.setup.sweeps
        later: list[Row] = []
        if bench.scorer.for_sweeps is bench.scorer:
            later = reported_rows(sweeps, choose_sweeps(bench, sweeps), rank_by=bench.setup.evaluation.rank_by)
        scores = bench.scorer.test([*(row_of(row) for row in rows.rows), *later])
        first = row_of(rows.rows[0])
        validated = bench.scorer.validate([first])  # known: it was scored when it was chosen
        seeds = () if bench.setup.seed is None else (bench.setup.seed,)
        return EvaluationsRecord(
            inputs=inputs,
            evaluations=tuple(
                evaluation(row.name, scores[row.name], seeds=seeds, resamples=bench.setup.evaluation.resamples)
                for row in rows.rows
            ),
            notes=left_out(bench.setup.evaluation.lm_eval),
            protocol=protocol_fields(
                bench, {Split.VALIDATION: validated[first.name], Split.TEST: scores[rows.rows[0].name]}
            ),
        )

    return records.ensure(EvaluationsRecord, inputs, make)


def evaluation(name: str, scores: TestScores, *, seeds: tuple[int, ...], resamples: int) -> Evaluation:
    """Test scores with intervals."""
    assert scores.losses is not None
    return Evaluation(
        row=name,
        split=Split.TEST,
        loss=loss_estimate(scores, resamples=resamples),
        overall_average=accuracy_estimate(scores, resamples=resamples),
        answer_loss=answer_estimate(scores, resamples=resamples),
        categories=scores.category_means,
        tasks={task.name: task.accuracy for task in scores.tasks},
        sources=scores.losses.by_source(),
        seeds=seeds,
        kept=scores.kept,
    )
