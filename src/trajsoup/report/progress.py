"""How far a study is: which stages have their record, and what its branches have logged so far.

records/*.json -> StageState        branches/*/metrics.jsonl, outcome.json -> BranchState, while there is no record yet
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.train import TrainedBranch, TrainRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.stages import STAGES, Stage
from trajsoup.study.status import StageState
from trajsoup.study.train.outcomes import METRICS, LoggedRow, end_of, logged_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchState:
    """How one branch trains, or ended."""

    name: str
    status: str  # waiting, running, finished, diverged, failed, foreign
    tokens: int
    horizon: int | None
    losses: tuple[tuple[int, float], ...] = ()  # training loss against tokens
    message: str | None = None  # why it ended before its horizon
    tokens_per_second: float | None = None  # while it runs

    @property
    def share(self) -> float:
        """How much of the horizon is done, 0 to 1."""
        return min(self.tokens / self.horizon, 1.0) if self.horizon else 0.0

    @property
    def broken(self) -> bool:
        """Whether it ended before its horizon."""
        return self.status in ("failed", "diverged")


def stage_states(records: Records, branches: Sequence[BranchState]) -> tuple[StageState, ...]:
    """Done where the record exists; the first that is missing is at work.

    Whether a stage that not every study asks for is still to come, only the study file knows: it is listed when done.
    """
    found: list[StageState] = []
    reached = False
    for stage in STAGES:
        done = _is_done(stage, records)
        if done or stage.wanted is None:
            state = "done" if done else "waiting" if reached else "running"
            reached = reached or not done
            detail = _training(branches, done=done) if stage.record is TrainRecord and branches else None
            found.append(StageState(stage=stage.name, state=state, detail=detail))
    return tuple(found)


def is_running(stages: Sequence[StageState]) -> bool:
    """Whether more is to come."""
    return any(stage.state != "done" for stage in stages)


def branch_states(records: Records) -> tuple[BranchState, ...]:
    """Every branch that any record names, in the plan's order."""
    plan, train, screen = records.read(PlanRecord), records.read(TrainRecord), records.read(ScreenRecord)
    validation = records.read(ValidationRecord)
    ended = {} if train is None else {b.branch: b for b in train.branches}
    names = dict.fromkeys(
        [
            *(() if plan is None else plan.branches),
            *ended,
            *(() if validation is None else (c.branch for c in validation.checkpoints)),
            *(() if screen is None else (v.branch for v in screen.verdicts)),
        ]
    )
    horizon = None if plan is None else plan.horizon
    return tuple(_branch(records.study, name, ended.get(name), horizon) for name in names)


def _is_done(stage: Stage, records: Records) -> bool:
    if stage.record.SEVERAL:
        return any((records.folder / stage.name).glob("*.json"))
    return records.path(stage.record).is_file()


def _training(branches: Sequence[BranchState], *, done: bool) -> str:
    return f"{len(branches)} branches" if done else f"{sum(b.share for b in branches) / len(branches):.0%}"


def _branch(study: Path, name: str, ended: TrainedBranch | None, horizon: int | None) -> BranchState:
    metrics = _metrics_file(study, name, ended)
    rows = [] if metrics is None else logged_rows(metrics)
    losses = tuple(_losses(rows))
    if ended is not None:
        return BranchState(
            name=name,
            status=ended.status,
            tokens=ended.tokens,
            horizon=horizon,
            losses=losses,
            message=ended.message,
        )
    end = None if metrics is None else end_of(metrics.parent)
    running = end is None and bool(losses)
    return BranchState(
        name=name,
        status="running" if running else "waiting" if end is None else end.status.value,
        tokens=losses[-1][0] if losses else 0,
        horizon=horizon,
        losses=losses,
        message=None if end is None else end.message,
        tokens_per_second=rows[-1].tokens_per_second if running else None,
    )


def _metrics_file(study: Path, name: str, ended: TrainedBranch | None) -> Path | None:
    """metrics.jsonl of a branch, if it lies inside the study: a record must not lead anywhere else."""
    relative = f"branches/{name}/{METRICS}" if ended is None else ended.metrics
    if relative is None:
        return None
    root = study.resolve()
    try:
        path = (root / relative).resolve()
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(root) and path.is_file() else None


def _losses(rows: Iterable[LoggedRow]) -> Iterable[tuple[int, float]]:
    last = -1
    for row in rows:
        tokens, loss = row.tokens, row.training_loss
        if tokens is not None and loss is not None and math.isfinite(loss) and tokens > last:
            last = int(tokens)
            yield last, loss
