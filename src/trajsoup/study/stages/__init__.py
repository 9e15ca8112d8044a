"""The stages of a study, in order: one table, from which running, listing and the live page follow.

    plan -> train -> validation -> screen -> rows -> evaluations -> comparisons -> ... -> answer

Each reads the records before it, does one thing and writes its own; it is skipped when the record that exists names the
inputs it would be made from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trajsoup.study.file.keep import keeps_needed
from trajsoup.study.file.study import Setup, Study
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.comparisons import ComparisonsRecord
from trajsoup.study.records.conditions import ConditionsRecord
from trajsoup.study.records.connectivity import ConnectivityRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import Record
from trajsoup.study.records.fine_tuning import FineTuningRecord
from trajsoup.study.records.frontier import FrontierRecord
from trajsoup.study.records.geometry import GeometryRecord
from trajsoup.study.records.neighbours import NeighboursRecord
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.retention import RetentionRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.stages.answer import answer_stage
from trajsoup.study.stages.comparisons import comparisons_stage
from trajsoup.study.stages.conditions import conditions_stage
from trajsoup.study.stages.connectivity import connectivity_stage
from trajsoup.study.stages.evaluations import evaluations_stage
from trajsoup.study.stages.fine_tuning import fine_tuning_stage
from trajsoup.study.stages.frontier import frontier_stage, has_frontier
from trajsoup.study.stages.geometry import geometry_stage
from trajsoup.study.stages.neighbours import has_neighbours, neighbours_stage
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
    Stage(record=PlanRecord, run=plan_stage),
    Stage(record=TrainRecord, run=train_stage),
    Stage(record=ValidationRecord, run=validation_stage),
    Stage(record=ScreenRecord, run=screen_stage),
    Stage(record=RowsRecord, run=rows_stage),
    Stage(record=EvaluationsRecord, run=evaluations_stage),
    Stage(record=ComparisonsRecord, run=comparisons_stage),
    Stage(record=SweepRecord, run=sweeps_stage, wanted=lambda setup: bool(setup.sweeps)),
    Stage(record=FrontierRecord, run=frontier_stage, wanted=has_frontier),
    Stage(record=TheoryRecord, run=theory_stage),
    Stage(record=GeometryRecord, run=geometry_stage, wanted=lambda setup: not keeps_needed(setup)),
    Stage(record=ConnectivityRecord, run=connectivity_stage, wanted=lambda setup: setup.connectivity is not None),
    Stage(record=ConditionsRecord, run=conditions_stage),
    Stage(record=FineTuningRecord, run=fine_tuning_stage, wanted=lambda setup: setup.sft is not None),
    Stage(record=NeighboursRecord, run=neighbours_stage, wanted=has_neighbours),
    Stage(record=AnswerRecord, run=answer_stage),
    Stage(
        record=RetentionRecord,
        run=retention_stage,
        wanted=lambda setup: isinstance(setup, Study) and setup.retention is not None,
    ),
)
