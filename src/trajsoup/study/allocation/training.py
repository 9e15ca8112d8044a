"""`allocation: adaptive`: the training of a study as a world that can be played (core/allocating.py).

    positions -> train branches to the next one -> score checkpoints, anchors and pairs on validation -> decide -> ...

Killed, it is played again from the start: what was trained and scored is there, so the same decisions follow at once. The
learning rate's schedule is that of the whole horizon, as for the prefixes of a Limited budget.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from trajsoup.core.adaptive import Course, Table
from trajsoup.core.allocating import Played, play
from trajsoup.core.pool import Pool
from trajsoup.core.screening import smoothed
from trajsoup.study.allocation.tables import course, look_positions, look_table
from trajsoup.study.file.allocation import Adaptive
from trajsoup.study.file.study import Study
from trajsoup.study.live_scores import LiveScores
from trajsoup.study.records.allocation import AllocationRecord
from trajsoup.study.train.branches import branch_jobs, share_of_cores, train_jobs, train_study
from trajsoup.study.train.plan import Plan
from trajsoup.study.train.processes import Status
from trajsoup.study.workbench import Workbench


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """The game that was played, and where the fork point lies."""

    played: Played
    fork_point: Path
    record: AllocationRecord


def allocate(bench: Workbench, inputs: Mapping[str, str]) -> Allocated:
    """Train the study's branches within its budget, opening, extending and stopping them."""
    study, plan = bench.setup, bench.plan
    assert isinstance(study, Study)
    assert plan is not None
    assert study.allocation is not None
    asked = {"jobs": bench.jobs, "cache": bench.cache, "corpus": bench.corpus, "on_progress": bench.on_train}
    fork_point = train_study(study, branches=[], plan=plan, executor=bench.executor, **asked).fork_point
    world = TrainingWorld(bench, plan, fork_point=fork_point)
    budget = study.allocation.tokens or plan.positions.horizon
    played = play(world, study.allocation.policy, budget=budget, tolerance=study.evaluation.tolerance)
    record = AllocationRecord(
        inputs=inputs,
        budget=budget,
        spent=played.spent,
        positions=tuple(world.positions),
        decisions=played.decisions,
        live=played.live,
        tokens=played.tokens,
        trained=played.trained,
        stopped=played.stopped,
        lost=played.lost,
        waiting=tuple(name for name in world.names if name not in played.trained),
    )
    return Allocated(played=played, fork_point=fork_point, record=record)


class TrainingWorld:
    """Branches that are trained to positions and scored there."""

    def __init__(self, bench: Workbench, plan: Plan, *, fork_point: Path) -> None:
        self.bench, self.plan, self.fork_point = bench, plan, fork_point
        study = plan.study
        asked = study.allocation or Adaptive()
        first = next(b.name for b in plan.branches if not b.changed)
        self.names: Sequence[str] = (first, *(name for name in study.recipes if name != first))
        self.positions: Sequence[int] = look_positions(
            plan.positions.all(), looks=asked.looks, fewest=min(study.evaluation.ks)
        )
        self._live = LiveScores(bench, plan, fork_point=fork_point)

    def reach(self, branches: Sequence[str], tokens: int) -> Mapping[str, str]:
        """Train them on to the position; a branch that diverges is lost, one that fails is an error."""
        bench, study = self.bench, self.plan.study
        runs = [run for run in self.plan.runs if run.branch in branches]
        cores = len(os.sched_getaffinity(0))
        share = share_of_cores(study.trainer, cores=cores, jobs=min(bench.jobs or cores, len(runs)))
        jobs = branch_jobs(self.plan, bench.corpus, self.fork_point, share=share, runs=runs)
        outcomes = train_jobs(
            study,
            {name: dataclasses.replace(job, stop_at=tokens) for name, job in jobs.items()},
            at_once=bench.jobs,
            cache=bench.cache,
            on_progress=bench.on_train,
            executor=bench.executor,
            may_diverge=True,
        )
        return {o.branch: o.message or "it diverged" for o in outcomes if o.status is Status.DIVERGED}

    def table(self, branches: Sequence[str], tokens: int) -> Table:
        """Anchors and pairs on validation, of what was saved by the position."""
        pools = self._pools(branches, tokens)
        ks = self.plan.study.evaluation.ks
        scoring = lambda rows: self._live.scorer.validate(rows, what="looks", tasks=False)  # noqa: E731
        return look_table(pools, tokens=tokens, ks=ks, scoring=scoring)

    def course(self, branch: str, tokens: int) -> Course:
        """J on the probe of training documents, checkpoint by checkpoint."""
        pools = [pool.over(smoothed) for pool in self._pools([self.names[0], branch], tokens)]
        return course(pools, branch, self._live.probe, baseline=self.names[0], tokens=tokens)

    def _pools(self, branches: Sequence[str], tokens: int) -> list[Pool]:
        """Every checkpoint by the position with its scores, in the order of the branches."""
        runs = {run.branch: run for run in self.plan.runs}
        return self._live.pools([runs[name] for name in branches], tokens=tokens)
