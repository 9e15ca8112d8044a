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
from trajsoup.study.stages.estimates import compared, row_of
from trajsoup.study.stages.ties import column_ties
from trajsoup.study.workbench import Workbench

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
    records, asked = bench.records, bench.setup.primary
    inputs = {**records.digests(RowsRecord, EvaluationsRecord), "primary": digest_of([str(one) for one in asked])}

    def make() -> ComparisonsRecord:
        rows: dict[str, RowRecord] = {row.name: row for row in records.require(RowsRecord).rows}
        scores = bench.scorer.test([row_of(row) for row in rows.values()])  # known already: read from their records
        resamples = bench.setup.evaluation.resamples
        baseline = records.require(ScreenRecord).baseline
        primary = resolved(asked, baseline=baseline)
        found: list[ComparisonRecord] = []
        for name, model, reference, question, matched in questions(primary, serial=f"single/{baseline}"):
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


def questions(primary: Sequence[Primary], *, serial: str) -> list[tuple[str, str, str, str, str]]:
    """What every study asks, and what this one has registered besides."""
    first = (
        "soup-serial",
        LIMITED,
        serial,
        "Does the soup beat the baseline's run of the same tokens, merged?",
        "budget",
    )
    asked = {(model, reference) for _, model, reference, _, _ in (first, *QUESTIONS)}
    more = dict.fromkeys((one.model, one.reference) for one in primary if (one.model, one.reference) not in asked)
    return [
        first,
        *QUESTIONS,
        *((f"{one} against {other}", one, other, f"Does {one} beat {other}?", "nothing") for one, other in more),
    ]


def with_verdicts(found: Sequence[ComparisonRecord], primary: Sequence[Primary]) -> tuple[ComparisonRecord, ...]:
    """Mark the registered comparisons and adjust their p values for all of them that could be made (Holm)."""
    registered = {(one.model, one.reference, one.signal) for one in primary}
    marked = [replace(c, primary=(c.model, c.reference, c.signal) in registered) for c in found]
    family = [c.p for c in marked if c.primary and c.p is not None]
    adjusted = iter(holm(family))
    return tuple(replace(c, p_holm=next(adjusted)) if c.primary and c.p is not None else c for c in marked)
