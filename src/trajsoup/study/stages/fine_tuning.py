"""The fine-tuning stage: every model of the main table through the same SFT, then the post-training suite.

    rows -> streamed into one live model -> fine_tune in place -> suite, answer loss on test items -> sft.json

The merge that was strongest before fine-tuning need not be strongest after it (app:exp-merge-post): it is chosen again,
among the single merges, on validation items that nothing reports. The fine-tuned weights are never written: the next row
overwrites them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajsoup.core.choosing import choose
from trajsoup.core.scores import TestScores, ValidationScores, mean_scores
from trajsoup.core.soup import Row
from trajsoup.core.splits import Split
from trajsoup.core.statistics import spread_over_seeds
from trajsoup.store.scores import ScoreKey, ScoreStore, test_store, validation_store
from trajsoup.study.file.evaluation import FineTuningPlan
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.fine_tuning import FineTuned, FineTuningRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.stages.comparisons import EXTENDED, LIMITED, QUESTIONS
from trajsoup.study.stages.estimates import Question, accuracy_estimate, compared, finite, loss_estimate, row_of
from trajsoup.study.stages.ties import column_ties
from trajsoup.study.workbench import SCORES, Workbench

if TYPE_CHECKING:
    from trajsoup.lm.sft import Pairs
    from trajsoup.lm.tasks.scoring import PreparedSuite

SOUPED = "souped"  # instead of a seed: the mean of the weights of all seeds' runs, branches in post-training
Run = tuple[str, int | str | None]  # a row, and the seed of its fine-tuning, or SOUPED; None: before it
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
    from trajsoup.lm.tasks.post_training import SCORED, SUITE
    from trajsoup.lm.tasks.scoring import prepare_suite
    from trajsoup.lm.tasks.training import fine_tuning_items

    rows: RowsRecord = bench.records.require(RowsRecord)
    wanted = [row_of(row) for row in rows.rows if row.name not in NOT_TUNED]
    singles = _singles(bench, rows)
    tokenizer = bench.corpus.tokenizer

    def exam(split: Split) -> _Exam:
        asked = fine_tuning_items(count=plan.test_items * len(SUITE), split=split)
        return _Exam(
            held_out=prepare_pairs(asked, tokenizer=tokenizer),
            suite=prepare_suite(SCORED, tokenizer=tokenizer, split=split, items_each=plan.test_items),
        )

    course = _Course(
        plan=plan,
        pairs=prepare_pairs(fine_tuning_items(count=plan.items), tokenizer=tokenizer),
        exams={split: exam(split) for split in (Split.TEST, Split.VALIDATION)},
    )
    scores, choosing = _scores(bench, wanted, course, singles=singles)
    resamples = bench.setup.evaluation.resamples
    together = {row.name: mean_scores([scores[row.name, s] for s in range(plan.seeds)]) for row in wanted}
    strongest = _strongest(bench, plan, choosing, singles)
    test = course.exams[Split.TEST]
    labels = {row.name: row.label for row in rows.rows}
    settings = {
        "optimizer": "AdamW, betas 0.9 and 0.95, no weight decay, clip 1",
        "schedule": f"linear decay of {plan.peak_lr:g} to 0",
        "pairs": f"{plan.items:,}, {course.pairs.answer_tokens:,} answer tokens, {plan.epochs} epochs, "
        f"batch {plan.batch}; prompts have no loss",
        "seeds": str(plan.seeds),
        "suite": f"{len(SCORED)} of {len(SUITE)} scenarios, {plan.test_items} test items each",
        "data": f"generated chat items, sha256 {course.pairs.digest}; answers held out, {test.held_out.digest}; suite, "
        f"{test.suite.digest}",
    }
    return FineTuningRecord(
        inputs=inputs,
        settings=settings,
        rows=tuple(_tuned(row.name, scores, together[row.name], plan.seeds, resamples) for row in wanted),
        ties=column_ties(together, resamples=resamples),
        comparisons=(
            *_compared(together, labels, resamples, strongest),
            *(c for row in wanted for c in _souped(row.name, scores, together, labels, resamples)),
        ),
        strongest_single=strongest,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """What every model goes through, and is asked afterwards."""

    plan: FineTuningPlan
    pairs: Pairs
    exams: Mapping[Split, _Exam]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exam:
    """What is asked after it, of one split."""

    held_out: Pairs
    suite: PreparedSuite


def _singles(bench: Workbench, rows: RowsRecord) -> tuple[str, ...]:
    """The rows of single branches that passed the screen."""
    screen = bench.records.read(ScreenRecord)
    rejected = set[str]() if screen is None else {v.branch for v in screen.verdicts if not v.admitted}
    return tuple(row.name for row in rows.rows if row.alone and not rejected & set(row.branches))


def _strongest(
    bench: Workbench, plan: FineTuningPlan, scores: Mapping[Run, ValidationScores], singles: Sequence[str]
) -> str | None:
    """The single merge that is best after fine-tuning, on validation items, by what the study ranks by."""
    if not singles:
        return None
    means = {name: mean_scores([scores[name, seed] for seed in range(plan.seeds)]) for name in singles}
    return choose(means, rank_by=bench.setup.evaluation.rank_by).name


def _scores(
    bench: Workbench, wanted: Sequence[Row], course: _Course, *, singles: Sequence[str]
) -> tuple[dict[Run, TestScores], dict[Run, ValidationScores]]:
    """Scores of every row before (None) and after the fine-tuning with each seed; known ones come from their records.

    On test for the report; single merges on validation too, after it, to choose.
    """
    plan = course.plan
    folder = bench.setup.output / TUNED_SCORES
    tests, validations = test_store(folder), validation_store(folder)
    identities = bench.identities
    ingredients = {key: identities.checkpoint(bench.checkpoints[key]) for row in wanted for key in row.weights}
    identities.save()
    shape = {**dataclasses.asdict(plan), "pairs": course.pairs.digest}
    del shape["seeds"]  # more seeds do not make those that are known unknown
    keys = {
        (row.name, seed, split): ScoreKey(
            model=identities.row(row, ingredients),
            corpus=exam.held_out.digest,
            suite=exam.suite.digest,
            settings={**shape, "seed": f"{SOUPED}, {plan.seeds}" if seed == SOUPED else seed},
        )
        for row in wanted
        for seed in _runs(plan)
        for split, exam in course.exams.items()
        if split is Split.TEST or (isinstance(seed, int) and row.name in singles)
    }
    missing = {run: of for run, of in keys.items() if (tests if run[2] is Split.TEST else validations).read(of) is None}
    if missing:
        rows = [row for row in wanted if row.name in {name for name, _, _ in missing}]
        _run(bench, rows, course, missing, tests, validations)
    return (
        {
            (name, seed): s
            for (name, seed, split), of in keys.items()
            if split is Split.TEST and (s := tests.read(of)) is not None
        },
        {
            (name, seed): s
            for (name, seed, split), of in keys.items()
            if split is Split.VALIDATION and (s := validations.read(of)) is not None
        },
    )


def _run(
    bench: Workbench,
    rows: Sequence[Row],
    course: _Course,
    keys: Mapping[tuple[str, int | str | None, Split], ScoreKey],
    tests: ScoreStore[TestScores],
    validations: ScoreStore[ValidationScores],
) -> None:
    from trajsoup.lm.live import load_model, stream_rows
    from trajsoup.lm.sft import FineTuning, answer_losses, fine_tune
    from trajsoup.lm.tasks.scoring import score_suite

    plan = course.plan
    model = load_model(bench.model_source)
    runs = len({(name, seed) for name, seed, _ in keys})
    done = 0
    for row in stream_rows(model, bench.checkpoints, rows, options=bench.options):
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        soup = {n: t.double() * 0 for n, t in start.items() if t.is_floating_point()}
        for seed in _runs(plan):
            wanted = {split: keys[row.name, seed, split] for split in course.exams if (row.name, seed, split) in keys}
            souped = (row.name, SOUPED, Split.TEST) in keys and isinstance(seed, int)
            if not (wanted or souped):
                continue
            bench.progress("fine-tuning", done, runs)
            model.load_state_dict(start)
            if isinstance(seed, int):
                tuning = FineTuning(epochs=plan.epochs, batch=plan.batch, peak_lr=plan.peak_lr, seed=seed)
                fine_tune(model, course.pairs, settings=tuning)
            elif seed == SOUPED:
                model.load_state_dict({n: soup[n].to(t.dtype) if n in soup else t for n, t in start.items()})
            if souped:
                soup = {n: t + model.state_dict()[n].double() / plan.seeds for n, t in soup.items()}
            for split, key in wanted.items():
                exam = course.exams[split]
                losses, tasks = answer_losses(model, exam.held_out), score_suite(model, exam.suite)
                if split is Split.TEST:
                    tests.write(key, TestScores(losses=losses, tasks=tasks), name=row.name)
                else:
                    validations.write(key, ValidationScores(losses=losses, tasks=tasks), name=row.name)
            done += bool(wanted)
    bench.progress("fine-tuning", runs, runs)


def _runs(plan: FineTuningPlan) -> tuple[int | str | None, ...]:
    """What is scored of every row: before fine-tuning, after it with each seed, and the mean of these runs."""
    return (None, *range(plan.seeds), *((SOUPED,) if plan.seeds > 1 else ()))


def _tuned(name: str, scores: Mapping[Run, TestScores], mean: TestScores, seeds: int, resamples: int) -> FineTuned:
    average = accuracy_estimate(mean, resamples=resamples)
    assert average is not None
    by_seed = {str(s): value for s in range(seeds) if (value := scores[name, s].overall_average) is not None}
    before, souped = scores[name, None], scores.get((name, SOUPED))
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
        souped=None if souped is None else accuracy_estimate(souped, resamples=resamples),
        souped_loss=None if souped is None else loss_estimate(souped, resamples=resamples),
    )


def _souped(
    name: str,
    scores: Mapping[Run, TestScores],
    together: Mapping[str, TestScores],
    labels: Mapping[str, str],
    resamples: int,
) -> list[ComparisonRecord]:
    """The soup of a row's fine-tunings against the mean of their scores."""
    souped = scores.get((name, SOUPED))
    if souped is None:
        return []
    asked = Question(
        name=f"{SOUPED}/{name}",
        model=f"{name}/{SOUPED}",
        reference=name,
        question="Does the mean of the fine-tuned weights beat the mean of their scores?",
        matched="the same fine-tunings",
    )
    label = f"{labels[name]}, its fine-tunings souped, against one of them"
    return compared(asked, souped, together[name], label=label, resamples=resamples)


def _compared(
    scores: dict[str, TestScores], labels: Mapping[str, str], resamples: int, strongest: str | None
) -> tuple[ComparisonRecord, ...]:
    found: list[ComparisonRecord] = []
    again = "Does the soup beat the single merge that is strongest after fine-tuning?"
    rechosen = [
        Question(name=f"{name}-rechosen", model=model, reference=strongest, question=again, matched=matched)
        for name, model, matched in (("soup-limited", LIMITED, "budget"), ("soup-extended", EXTENDED, "horizon"))
        if strongest is not None
    ]
    for asked in (*QUESTIONS, *rechosen):
        model, reference = asked.model, asked.reference
        if model in scores and reference in scores and model in (LIMITED, EXTENDED):
            label = f"{labels[model]} against {labels[reference]}"
            found += compared(asked, scores[model], scores[reference], label=label, resamples=resamples)
    return tuple(found)
