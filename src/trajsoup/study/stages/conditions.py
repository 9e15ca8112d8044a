"""The conditions stage: can the paper's question be asked of this study at all? Five conditions, each measured.

    validation, theory, crossing; fork point and the baseline's merge on test -> conditions, met or not

None of them looks at whether a soup won. A study that misses one still runs; its page says what then cannot be told.
"""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.saturation import FLAT
from trajsoup.core.signal import Signal
from trajsoup.core.statistics import ranking_agreement
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.conditions import Condition, ConditionsRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord, sweep_of
from trajsoup.study.records.theory import PredictedCell, TheoryRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.score.scorer import FORK_POINT, single
from trajsoup.study.stages.estimates import Question, compared, row_of
from trajsoup.study.sweeps.crossing import SERIAL
from trajsoup.study.workbench import Workbench

SKILLED = 0.15  # above guessing

APART = 0.0  # nats that a second branch must be worth at the least


def conditions_stage(bench: Workbench) -> bool:
    """Measure the five conditions."""
    records = bench.records
    inputs = records.digests(ValidationRecord, RowsRecord, TheoryRecord)
    crossing: SweepRecord | None = sweep_of(records, "crossing")
    if crossing is not None:
        inputs["crossing"] = records.digest(SweepRecord, crossing.name)

    def make() -> ConditionsRecord:
        validation: ValidationRecord = records.require(ValidationRecord)
        baseline = records.require(ScreenRecord).baseline
        return ConditionsRecord(
            inputs=inputs,
            conditions=(
                _apart(records.require(TheoryRecord).cells),
                _skilled(bench, validation),
                _aligned(validation, baseline),
                _saturated(() if crossing is None else crossing.points),
                _beaten(_against_fork_point(bench, f"single/{baseline}")),
            ),
        )

    return records.ensure(ConditionsRecord, inputs, make)


def _apart(cells: Sequence[PredictedCell]) -> Condition:
    """Large enough: branches settle in places that are worth averaging."""
    by_count = {n: {c.k: c.measured for c in cells if c.n_branches == n} for n in (1, 2)}
    both = sorted(by_count[1].keys() & by_count[2].keys(), key=lambda k: by_count[1][k])
    worth = by_count[1][both[0]] - by_count[2][both[0]] if both else None
    return Condition(
        name="size",
        question="Is the model large enough for branches to differ?",
        wanted="worth of a second branch above 0, at the best K of one",
        measured="fewer than two branches"
        if worth is None
        else f"{worth:+.4f} nats on validation (mean over pairs, K = {both[0]})",
        value=worth,
        met=None if worth is None else worth > APART,
    )


def _skilled(bench: Workbench, validation: ValidationRecord) -> Condition:
    """Behind the transitions: branches that learn a skill each in their own way cannot be averaged."""
    accuracy = validation.fork_point_accuracy
    chance = None
    if accuracy is not None:
        tasks = bench.scorer.validate([single(FORK_POINT)])[FORK_POINT].tasks  # known: read from its record
        known = [task.chance for task in tasks if task.chance is not None]
        chance = sum(known) / len(tasks) if len(known) == len(tasks) else None
    above = None if accuracy is None or chance is None else accuracy - chance
    return Condition(
        name="skills",
        question="Does the fork point know the tasks already?",
        wanted=f"{100 * SKILLED:.0f} points above guessing",
        measured="no tasks, or no fork point"
        if above is None or accuracy is None or chance is None
        else f"{100 * accuracy:.1f} %, guessing {100 * chance:.1f} %",
        value=above,
        met=None if above is None else above >= SKILLED,
    )


def _aligned(validation: ValidationRecord, baseline: str) -> Condition:
    """What chooses must go with what is reported."""
    mine = [c for c in validation.checkpoints if c.branch == baseline]
    both = [(c.loss, c.accuracy) for c in mine if c.loss is not None and c.accuracy is not None]
    rho = ranking_agreement([loss for loss, _ in both], [accuracy for _, accuracy in both])
    return Condition(
        name="alignment",
        question="Does validation loss rank checkpoints as the tasks do?",
        wanted="Spearman's correlation above 0, over the checkpoints of the baseline",
        measured="no tasks" if rho is None else f"{rho:+.2f} over {len(both)} checkpoints",
        value=rho,
        met=None if rho is None else rho > 0,
    )


def _saturated(points: Sequence[SweepPoint]) -> Condition:
    """Only where more tokens on one run buy nothing can the same tokens be better spent on branches."""
    line = {p.budget_tokens: p.validation_loss for p in points if p.series == SERIAL and p.validation_loss is not None}
    end = max(line, default=0)
    half = line.get(end // 2)
    gain = None if half is None or end % 2 else half - line[end]
    return Condition(
        name="saturation",
        question="Has the merged serial run levelled off?",
        wanted=f"its second half brings at most {FLAT} nats",
        measured="not swept over the budget" if gain is None else f"{gain:+.4f} nats on validation",
        value=gain,
        met=None if gain is None else gain <= FLAT,
    )


def _beaten(found: Sequence[ComparisonRecord]) -> Condition:
    """Or averaging only undoes harm."""
    parts = [
        f"{c.difference:+.4f} nats" if c.signal is Signal.LOSS else f"{100 * c.difference:+.1f} points"
        for c in found
        if c.difference is not None
    ]
    better = [
        c.difference < 0 if c.signal is Signal.LOSS else c.difference > 0 for c in found if c.difference is not None
    ]
    return Condition(
        name="fork point",
        question="Does mid-training beat the fork point?",
        wanted="the merged baseline is better on test, in loss and in tasks",
        measured=" and ".join(parts) or "no fork point",
        value=next((c.difference for c in found if c.signal is Signal.LOSS), None),
        met=all(better) if better else None,
        comparisons=tuple(found),
    )


def _against_fork_point(bench: Workbench, name: str) -> list[ComparisonRecord]:
    row = next((row for row in bench.records.require(RowsRecord).rows if row.name == name), None)
    if row is None or FORK_POINT not in bench.checkpoints:
        return []
    scores = bench.scorer.test([row_of(row), single(FORK_POINT)])
    asked = Question(
        name="fork-point",
        model=row.name,
        reference=FORK_POINT,
        question="Does mid-training beat the fork point?",
        matched="nothing: the fork point has no tokens of mid-training",
    )
    return compared(
        asked,
        scores[row.name],
        scores[FORK_POINT],
        label=f"{row.label} against the fork point",
        resamples=bench.setup.evaluation.resamples,
    )
