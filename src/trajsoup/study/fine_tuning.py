"""The fine-tuning stage: every model of the main table through the same SFT, then the post-training suite.

    rows -> streamed into one live model -> fine_tune in place -> suite on test items -> records by content -> sft.json

The fine-tuned weights are never written: the next row overwrites them.
"""

from __future__ import annotations

import dataclasses
import math

from trajsoup.core.scores import TaskResult, TestScores
from trajsoup.core.splits import Split
from trajsoup.store.identity import Identities
from trajsoup.store.scores import ScoreKey, test_store
from trajsoup.study.evaluation_section import FineTuningPlan
from trajsoup.study.record_files import digest_of
from trajsoup.study.records import ComparisonRecord, FineTuned, FineTuningRecord, RowsRecord
from trajsoup.study.reporting import EXTENDED, LIMITED, QUESTIONS, accuracy_estimate, compared, row_of
from trajsoup.study.workbench import SCORES, Workbench

NOT_TUNED = ("raw-final",)  # the paper tunes merges; the best raw checkpoint stands for the raw ones


def fine_tuning_stage(bench: Workbench) -> bool:
    """Fine-tune and score what is not known yet."""
    plan = bench.setup.sft
    assert plan is not None
    inputs = {"rows": bench.records.digest("rows"), "settings": digest_of(dataclasses.asdict(plan))}
    return bench.records.ensure("sft", inputs, lambda: _tune(bench, plan, inputs))[1]


def _tune(bench: Workbench, plan: FineTuningPlan, inputs: dict[str, str]) -> FineTuningRecord:
    from trajsoup.lm.live import load_model, stream_rows
    from trajsoup.lm.sft import FineTuning, fine_tune, prepare_pairs
    from trajsoup.lm.tasks.post_training import SUITE
    from trajsoup.lm.tasks.scoring import prepare_suite, score_suite
    from trajsoup.lm.tasks.training import fine_tuning_items

    rows: RowsRecord = bench.records.require("rows")
    wanted = [row_of(row) for row in rows.rows if row.name not in NOT_TUNED]
    tokenizer = bench.corpus.tokenizer
    suite = prepare_suite(SUITE, tokenizer=tokenizer, split=Split.TEST, items_each=plan.test_items)
    pairs = prepare_pairs(fine_tuning_items(count=plan.items), tokenizer=tokenizer)
    store = test_store(bench.setup.output / SCORES / "sft")
    identities = Identities(bench.setup.output / SCORES / "identities.json")
    ingredients = {key: identities.checkpoint(bench.checkpoints[key]) for row in wanted for key in row.weights}
    identities.save()
    shape = {**dataclasses.asdict(plan), "pairs": pairs.digest}
    seeds: tuple[int | None, ...] = (None, *range(plan.seeds))  # None: not fine-tuned
    keys = {
        (row.name, seed): ScoreKey(
            model=identities.row(row, ingredients), corpus=None, suite=suite.digest, settings={**shape, "seed": seed}
        )
        for row in wanted
        for seed in seeds
    }
    missing = [row for row in wanted if any(store.read(keys[row.name, seed]) is None for seed in seeds)]
    if missing:
        model = load_model(bench.checkpoints[next(iter(missing[0].weights))])
        for done, row in enumerate(stream_rows(model, bench.checkpoints, missing)):
            bench.progress("fine-tuning", done, len(missing))
            before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            for seed in seeds:
                if seed is not None:
                    model.load_state_dict(before)
                    tuning = FineTuning(epochs=plan.epochs, batch=plan.batch, peak_lr=plan.peak_lr, seed=seed)
                    fine_tune(model, pairs, settings=tuning)
                store.write(keys[row.name, seed], TestScores(tasks=score_suite(model, suite)), name=row.name)
        bench.progress("fine-tuning", len(missing), len(missing))
    scores = {key: store.read(found) for key, found in keys.items()}
    together = {row.name: _mean([_known(scores[row.name, s]) for s in range(plan.seeds)]) for row in wanted}
    resamples = bench.setup.evaluation.resamples
    tuned = tuple(
        FineTuned(
            row=row.name,
            split=Split.TEST,
            seeds=tuple(range(plan.seeds)),
            overall_average=_estimate(together[row.name], resamples),
            categories=together[row.name].category_means,
            before=_known(scores[row.name, None]).overall_average,
            loss=None,
        )
        for row in wanted
    )
    settings = {
        "optimizer": "AdamW, betas 0.9 and 0.95, no weight decay, clip 1",
        "schedule": f"linear decay of {plan.peak_lr:g} to 0",
        "pairs": f"{plan.items:,}, {pairs.answer_tokens:,} answer tokens, {plan.epochs} epochs, batch {plan.batch}",
        "seeds": str(plan.seeds),
        "suite": f"{len(SUITE)} scenarios, {plan.test_items} test items each",
    }
    return FineTuningRecord(inputs=inputs, settings=settings, rows=tuned, comparisons=_compared(together, resamples))


def _compared(scores: dict[str, TestScores], resamples: int) -> tuple[ComparisonRecord, ...]:
    found: list[ComparisonRecord] = []
    for name, model, reference, question, matched in QUESTIONS:
        if model in scores and reference in scores and model in (LIMITED, EXTENDED):
            found += compared(
                name, model, reference, scores[model], scores[reference], question, matched, resamples=resamples
            )
    return tuple(found)


def _mean(runs: list[TestScores]) -> TestScores:
    """Items averaged over the seeds of the fine-tuning."""
    tasks = [
        TaskResult(
            name=same[0].name,
            category=same[0].category,
            chance=same[0].chance,
            correct=sum(task.correct for task in same) / len(same),  # type: ignore[arg-type]
        )
        for same in zip(*(run.tasks for run in runs), strict=True)
    ]
    return TestScores(tasks=tuple(tasks))


def _estimate(scores: TestScores, resamples: int):  # noqa: ANN202
    found = accuracy_estimate(scores, resamples=resamples)
    assert found is not None
    assert found.value is None or math.isfinite(found.value)
    return found


def _known(scores: TestScores | None) -> TestScores:
    assert scores is not None
    return scores
