"""The fine-tuning stage: every model of the main table through the same SFT, then the post-training suite.

    rows -> streamed into one live model -> fine_tune in place -> suite, answer loss on test items -> sft.json

The fine-tuned weights are never written: the next row overwrites them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajsoup.core.scores import TestScores, mean_scores
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.core.statistics import spread_over_seeds
from trajsoup.store.scores import ScoreKey, ScoreStore, test_store
from trajsoup.study.file.evaluation import FineTuningPlan
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.results import ComparisonRecord, FineTuned, FineTuningRecord, RowsRecord
from trajsoup.study.stages.comparisons import EXTENDED, LIMITED, QUESTIONS
from trajsoup.study.stages.estimates import accuracy_estimate, compared, finite, loss_estimate, row_of
from trajsoup.study.stages.ties import column_ties
from trajsoup.study.workbench import SCORES, Workbench

if TYPE_CHECKING:
    from trajsoup.lm.sft import Pairs
    from trajsoup.lm.tasks.scoring import PreparedSuite

TUNED_SCORES = f"{SCORES}/sft"  # below the study
NOT_TUNED = ("raw-final",)  # the paper tunes merges; the best raw checkpoint stands for the raw ones


def fine_tuning_stage(bench: Workbench) -> bool:
    """Fine-tune and score what is not known yet."""
    plan = bench.setup.sft
    assert plan is not None
    inputs = {"rows": bench.records.digest(RowsRecord), "settings": digest_of(dataclasses.asdict(plan))}
    return bench.records.ensure(FineTuningRecord, inputs, lambda: _tune(bench, plan, inputs))


def _tune(bench: Workbench, plan: FineTuningPlan, inputs: dict[str, str]) -> FineTuningRecord:
    from trajsoup.lm.sft import prepare_pairs
    from trajsoup.lm.tasks.post_training import SUITE
    from trajsoup.lm.tasks.scoring import prepare_suite
    from trajsoup.lm.tasks.training import fine_tuning_items

    rows: RowsRecord = bench.records.require(RowsRecord)
    wanted = [row_of(row) for row in rows.rows if row.name not in NOT_TUNED]
    tokenizer = bench.corpus.tokenizer
    course = _Course(
        plan=plan,
        pairs=prepare_pairs(fine_tuning_items(count=plan.items), tokenizer=tokenizer),
        held_out=prepare_pairs(
            fine_tuning_items(count=plan.test_items * len(SUITE), split=Split.TEST), tokenizer=tokenizer
        ),
        suite=prepare_suite(SUITE, tokenizer=tokenizer, split=Split.TEST, items_each=plan.test_items),
    )
    scores = _scores(bench, wanted, course)
    resamples = bench.setup.evaluation.resamples
    together = {row.name: mean_scores([scores[row.name, s] for s in range(plan.seeds)]) for row in wanted}
    settings = {
        "optimizer": "AdamW, betas 0.9 and 0.95, no weight decay, clip 1",
        "schedule": f"linear decay of {plan.peak_lr:g} to 0",
        "pairs": f"{plan.items:,}, {course.pairs.answer_tokens:,} answer tokens, {plan.epochs} epochs, "
        f"batch {plan.batch}; prompts have no loss",
        "seeds": str(plan.seeds),
        "suite": f"{len(SUITE)} scenarios, {plan.test_items} test items each",
    }
    return FineTuningRecord(
        inputs=inputs,
        settings=settings,
        rows=tuple(_tuned(row.name, scores, together[row.name], plan.seeds, resamples) for row in wanted),
        ties=column_ties(together, resamples=resamples),
        comparisons=_compared(together, {row.name: row.label for row in rows.rows}, resamples),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """What every model goes through, and is asked afterwards."""

    plan: FineTuningPlan
    pairs: Pairs
    held_out: Pairs
    suite: PreparedSuite


def _scores(bench: Workbench, wanted: Sequence[Row], course: _Course) -> dict[tuple[str, int | None], TestScores]:
    """Scores of every row before (None) and after the fine-tuning with each seed; known ones come from their records."""
    plan = course.plan
    store = test_store(bench.setup.output / TUNED_SCORES)
    identities = bench.identities
    ingredients = {key: identities.checkpoint(bench.checkpoints[key]) for row in wanted for key in row.weights}
    identities.save()
    shape = {**dataclasses.asdict(plan), "pairs": course.pairs.digest}
    del shape["seeds"]  # more seeds do not make those that are known unknown
    keys = {
        (row.name, seed): ScoreKey(
            model=identities.row(row, ingredients),
            corpus=course.held_out.digest,
            suite=course.suite.digest,
            settings={**shape, "seed": seed},
        )
        for row in wanted
        for seed in (None, *range(plan.seeds))
    }
    missing = [row for row in wanted if any(store.read(k) is None for (name, _), k in keys.items() if name == row.name)]
    if missing:
        _run(bench, missing, course, {key: found for key, found in keys.items() if store.read(found) is None}, store)
    found = {key: store.read(of) for key, of in keys.items()}
    return {key: scores for key, scores in found.items() if scores is not None}


def _run(
    bench: Workbench,
    rows: Sequence[Row],
    course: _Course,
    keys: Mapping[tuple[str, int | None], ScoreKey],
    store: ScoreStore[TestScores],
) -> None:
    from trajsoup.lm.live import load_model, stream_rows
    from trajsoup.lm.sft import FineTuning, answer_losses, fine_tune
    from trajsoup.lm.tasks.scoring import score_suite

    plan = course.plan
    model = load_model(bench.model_source)
    runs = len(keys)
    done = 0
    for row in stream_rows(model, bench.checkpoints, rows, options=bench.options):
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for seed in (None, *range(plan.seeds)):
            if (row.name, seed) not in keys:
                continue
            bench.progress("fine-tuning", done, runs)
            model.load_state_dict(start)
            if seed is not None:
                tuning = FineTuning(epochs=plan.epochs, batch=plan.batch, peak_lr=plan.peak_lr, seed=seed)
                fine_tune(model, course.pairs, settings=tuning)
            scores = TestScores(losses=answer_losses(model, course.held_out), tasks=score_suite(model, course.suite))
            store.write(keys[row.name, seed], scores, name=row.name)
            done += 1
    bench.progress("fine-tuning", runs, runs)


def _tuned(
    name: str, scores: Mapping[tuple[str, int | None], TestScores], mean: TestScores, seeds: int, resamples: int
) -> FineTuned:
    average = accuracy_estimate(mean, resamples=resamples)
    assert average is not None
    by_seed = {str(s): value for s in range(seeds) if (value := scores[name, s].overall_average) is not None}
    before = scores[name, None]
    return FineTuned(
        row=name,
        split=Split.TEST,
        seeds=tuple(range(seeds)),
        overall_average=average,
        by_seed=by_seed,
        deviation=spread_over_seeds(list(by_seed.values())).deviation,
        categories=mean.category_means,
        before=before.overall_average,
        loss=loss_estimate(mean, resamples=resamples),
        loss_before=None if before.losses is None else finite(before.losses.loss()),
    )


def _compared(scores: dict[str, TestScores], labels: Mapping[str, str], resamples: int) -> tuple[ComparisonRecord, ...]:
    found: list[ComparisonRecord] = []
    for name, model, reference, question, matched in QUESTIONS:
        if model in scores and reference in scores and model in (LIMITED, EXTENDED):
            found += compared(
                name,
                model,
                reference,
                scores[model],
                scores[reference],
                question,
                matched,
                label=f"{labels[model]} against {labels[reference]}",
                resamples=resamples,
            )
    return tuple(found)
