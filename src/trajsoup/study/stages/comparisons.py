"""The comparisons stage: pairs of rows on the same test documents and items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trajsoup.core.crossed import holm
from trajsoup.core.statistics import LEVEL, Optimism, optimism
from trajsoup.study.file.primary import EXTENDED, LIMITED, SINGLE, Primary, resolved
from trajsoup.study.records.comparisons import ComparisonRecord, ComparisonsRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.rows import RowRecord, RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.stages.estimates import Question, compared, row_of
from trajsoup.study.stages.ties import column_ties
from trajsoup.study.workbench import Workbench

SAME_TOKENS = "Does the soup beat the best single merge of the same token budget?"
TOP_OR_FINAL, TOP_OR_ALL = (f"Top-K of each branch or {what} checkpoints?" for what in ("final", "all"))
QUESTIONS = tuple(
    Question(name=name, model=model, reference=reference, question=question, matched=matched)
    for name, model, reference, question, matched in (
        ("soup-limited", LIMITED, SINGLE, SAME_TOKENS, "budget"),
        ("soup-extended", EXTENDED, SINGLE, "Does the soup of full branches beat the best single merge?", "horizon"),
        ("merge", SINGLE, "raw-best", "Does merging one trajectory beat its best checkpoint?", "budget"),
        ("model-soup-limited", LIMITED, "model-soup/limited", TOP_OR_FINAL, "budget"),
        ("model-soup-extended", EXTENDED, "model-soup/extended", TOP_OR_FINAL, "horizon"),
        ("full-soup-limited", LIMITED, "full-soup/limited", TOP_OR_ALL, "budget"),
        ("full-soup-extended", EXTENDED, "full-soup/extended", TOP_OR_ALL, "horizon"),
        ("extension", EXTENDED, LIMITED, "What does running every branch to its end add?", "nothing: more tokens"),
    )
)


def comparisons_stage(bench: Workbench) -> bool:
    """Compare pairs of rows on the same test documents and items."""
    records, asked = bench.records, bench.setup.primary
    inputs = {**records.digests(RowsRecord, EvaluationsRecord), "primary": digest_of([str(one) for one in asked])}

    def make() -> ComparisonsRecord:
        rows: dict[str, RowRecord] = {row.name: row for row in records.require(RowsRecord).rows}
        scores = bench.scorer.test([row_of(row) for row in rows.values()])  # known already: read from their records
        resamples = bench.setup.evaluation.resamples
        baseline = records.require(ScreenRecord).baseline
        primary = resolved(asked, baseline=baseline)
        found: list[ComparisonRecord] = []
        for asked_for in questions(primary, serial=f"single/{baseline}"):
            model, reference = rows.get(asked_for.model), rows.get(asked_for.reference)
            if model is not None and reference is not None:
                budget = f"{asked_for.matched}: {model.budget_tokens:,} and {reference.budget_tokens:,} tokens"
                found += compared(
                    replace(asked_for, matched=budget),
                    scores[model.name],
                    scores[reference.name],
                    label=f"{model.label} against {reference.label}",
                    resamples=resamples,
                )
        listed = {name: scores[name] for name, row in rows.items() if not row.alone}
        judged = with_verdicts(found, primary)
        made = {(c.model, c.reference, c.signal) for c in judged}
        return ComparisonsRecord(
            inputs=inputs,
            level=LEVEL,
            resamples=resamples,
            comparisons=judged,
            ties=column_ties(listed, resamples=resamples),
            optimism=selection_optimism(bench, records.require(RowsRecord)),
            not_made=tuple(str(one) for one in primary if (one.model, one.reference, one.signal) not in made),
        )

    return records.ensure(ComparisonsRecord, inputs, make)


def selection_optimism(bench: Workbench, rows: RowsRecord) -> Optimism | None:
    """What the winner on validation loses on test, beside a row that nothing chose; None where there are not both."""
    sides = rows.winner_and_fixed()
    if sides is None:
        return None
    both = [row_of(row) for row in sides]
    validation, test = (
        bench.scoring("choosing")(both),
        bench.scorer.test(both),
    )  # known already: read from their records
    winner, fixed = ((validation[row.name], test[row.name]) for row in both)
    return optimism(winner, reference=fixed, resamples=bench.setup.evaluation.resamples)


def questions(primary: Sequence[Primary], *, serial: str) -> list[Question]:
    """What every study asks, and what this one has registered besides."""
    words = "Does the soup beat the baseline's run of the same tokens, merged?"
    first = Question(name="soup-serial", model=LIMITED, reference=serial, question=words, matched="budget")
    asked = {(one.model, one.reference) for one in (first, *QUESTIONS)}
    more = dict.fromkeys((one.model, one.reference) for one in primary if (one.model, one.reference) not in asked)
    registered = (
        Question(
            name=f"{model} against {reference}",
            model=model,
            reference=reference,
            question=f"Does {model} beat {reference}?",
            matched="nothing",
        )
        for model, reference in more
    )
    return [first, *QUESTIONS, *registered]


def with_verdicts(found: Sequence[ComparisonRecord], primary: Sequence[Primary]) -> tuple[ComparisonRecord, ...]:
    """Mark the registered comparisons and adjust their p values for all of them that could be made (Holm)."""
    registered = {(one.model, one.reference, one.signal) for one in primary}
    marked = [replace(c, primary=(c.model, c.reference, c.signal) in registered) for c in found]
    family = [c.p for c in marked if c.primary and c.p is not None]
    adjusted = iter(holm(family))
    return tuple(replace(c, p_holm=next(adjusted)) if c.primary and c.p is not None else c for c in marked)
