"""The comparisons stage: pairs of rows on the same test documents and items."""

from __future__ import annotations

from trajsoup.core.statistics import LEVEL
from trajsoup.study.records.results import ComparisonRecord, ComparisonsRecord, EvaluationsRecord, RowRecord, RowsRecord
from trajsoup.study.stages.estimates import compared, row_of
from trajsoup.study.stages.ties import column_ties
from trajsoup.study.workbench import Workbench

SINGLE, LIMITED, EXTENDED = "single-merge", "trajectory-soup/limited", "trajectory-soup/extended"
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


def comparisons_stage(bench: Workbench) -> bool:
    """Compare pairs of rows on the same test documents and items."""
    records = bench.records
    inputs = {"rows": records.digest(RowsRecord), "evaluations": records.digest(EvaluationsRecord)}

    def make() -> ComparisonsRecord:
        rows: dict[str, RowRecord] = {row.name: row for row in records.require(RowsRecord).rows}
        scores = bench.scorer.test([row_of(row) for row in rows.values()])  # known already: read from their records
        resamples = bench.setup.evaluation.resamples
        found: list[ComparisonRecord] = []
        for name, model, reference, question, matched in QUESTIONS:
            if model in rows and reference in rows:
                budget = f"{matched}: {rows[model].budget_tokens:,} and {rows[reference].budget_tokens:,} tokens"
                label = f"{rows[model].label} against {rows[reference].label}"
                found += compared(
                    name,
                    model,
                    reference,
                    scores[model],
                    scores[reference],
                    question,
                    budget,
                    label=label,
                    resamples=resamples,
                )
        listed = {name: scores[name] for name, row in rows.items() if not row.alone}
        return ComparisonsRecord(
            inputs=inputs,
            level=LEVEL,
            resamples=resamples,
            comparisons=tuple(found),
            ties=column_ties(listed, resamples=resamples),
        )

    return records.ensure(ComparisonsRecord, inputs, make)
