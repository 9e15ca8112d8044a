"""The stages of a study, in order: one table, from which running, listing and the live page follow.

    plan -> train -> validation -> screen -> rows -> evaluations -> comparisons -> ... -> answer

Each reads the records before it, does one thing and writes its own; it is skipped when the record that exists names the
inputs it would be made from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trajsoup.study.file.study import Setup, Study
from trajsoup.study.records import results, scaling
from trajsoup.study.records.files import Record
from trajsoup.study.stages.answer import answer_stage
from trajsoup.study.stages.comparisons import comparisons_stage
from trajsoup.study.stages.conditions import conditions_stage
from trajsoup.study.stages.evaluations import evaluations_stage
from trajsoup.study.stages.fine_tuning import fine_tuning_stage
from trajsoup.study.stages.frontier import frontier_stage, has_frontier
from trajsoup.study.stages.geometry import geometry_stage
from trajsoup.study.stages.plan import plan_stage
from trajsoup.study.stages.retention import retention_stage
from trajsoup.study.stages.rows import rows_stage
from trajsoup.study.stages.screen import screen_stage
from trajsoup.study.stages.sweeps import sweeps_stage
from trajsoup.study.stages.theory import theory_stage
from trajsoup.study.stages.train import train_stage
from trajsoup.study.stages.validation import validation_stage
from trajsoup.study.workbench import Workbench


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage: the record it makes, how, and which studies ask for it."""

    record: type[Record]
    run: Callable[[Workbench], bool]  # makes the record unless it stands; whether it was made now
    wanted: Callable[[Setup], bool] | None = None  # None: by every study

    @property
    def name(self) -> str:
        """That of its record's file."""
        return self.record.FILE

    def is_wanted(self, setup: Setup) -> bool:
        """Whether this study asks for it."""
        return self.wanted is None or self.wanted(setup)


STAGES = (
    Stage(record=results.PlanRecord, run=plan_stage),
    Stage(record=results.TrainRecord, run=train_stage),
    Stage(record=results.ValidationRecord, run=validation_stage),
    Stage(record=results.ScreenRecord, run=screen_stage),
    Stage(record=results.RowsRecord, run=rows_stage),
    Stage(record=results.EvaluationsRecord, run=evaluations_stage),
    Stage(record=results.ComparisonsRecord, run=comparisons_stage),
    Stage(record=results.SweepRecord, run=sweeps_stage, wanted=lambda setup: bool(setup.sweeps)),
    Stage(record=scaling.FrontierRecord, run=frontier_stage, wanted=has_frontier),
    Stage(record=scaling.TheoryRecord, run=theory_stage),
    Stage(record=results.GeometryRecord, run=geometry_stage),
    Stage(record=results.ConditionsRecord, run=conditions_stage),
    Stage(record=results.FineTuningRecord, run=fine_tuning_stage, wanted=lambda setup: setup.sft is not None),
    Stage(record=results.AnswerRecord, run=answer_stage),
    Stage(
        record=results.RetentionRecord,
        run=retention_stage,
        wanted=lambda setup: isinstance(setup, Study) and setup.retention is not None,
    ),
)
