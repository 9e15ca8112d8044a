"""Train the branches of a study: several at once, each in a process of its own with its share of threads.

    plan -> fork point -> one job per branch -> processes, at most `jobs` together -> outcomes

A branch that fails or diverges does not stop the others. Each writes a log of its own; progress is read from the
metrics.jsonl that every trainer leaves. What is finished is skipped, what was killed goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.core.threads import evenly, threads_for
from trajsoup.engine.executor import Executor
from trajsoup.errors import TrainError
from trajsoup.study.cache import cache_folder
from trajsoup.study.file.study import Study
from trajsoup.study.file.trainer import Builtin, TrainWith
from trajsoup.study.train.commands import builtin_process, command_process
from trajsoup.study.train.data import load_data
from trajsoup.study.train.fork_point import ensure_fork_point
from trajsoup.study.train.life_signs import LifeSigns
from trajsoup.study.train.outcomes import Progress, progress_of
from trajsoup.study.train.plan import Plan, Run, on_corpus, plan_study, require_room
from trajsoup.study.train.processes import (
    BranchProcess,
    Handle,
    Outcome,
    Status,
    end_branch,
    only_one,
    start_branch,
    stop_branches,
)
from trajsoup.study.train.tasks import run_branches

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus
    from trajsoup.lm.job import BranchJob

POLL_SECONDS = 0.2


class Stage(StrEnum):
    """What is being trained."""

    FORK_POINT = "fork point"
    BRANCHES = "branches"


OnProgress = Callable[[Stage, Sequence[Progress]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStudy:
    """How a study's branches ended."""

    plan: Plan
    fork_point: Path
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Branches without all their checkpoints."""
        return tuple(o for o in self.outcomes if o.status is not Status.FINISHED)


def train_study(
    study: Study,
    *,
    jobs: int | None = None,
    branches: Sequence[str] | None = None,
    cache: Path | None = None,
    corpus: Corpus | None = None,
    on_progress: OnProgress | None = None,
    executor: Executor | None = None,
    plan: Plan | None = None,
) -> TrainedStudy:
    """Train every branch (or those named) to its horizon. `jobs` branches run at once; default: one for each core, or
    a few more where the last ones would leave cores idle.

    A `plan` is that of the study on its corpus, where it is known already.
    With an `executor`, its machines train the branches, as many at once as it has room for.
    """
    cache = cache or cache_folder()
    cores = len(os.sched_getaffinity(0))
    wanted = _wanted(study, branches)
    _require_trackers(study)
    known, plan = plan, plan or plan_study(study)
    runs = [run for run in plan.runs if run.branch in wanted]
    jobs = jobs or evenly(len(runs), cores=cores)
    require_room(plan)  # what cannot work is refused before the corpus is tokenised
    corpus = corpus or load_data(study, cache=cache)
    if known is None:
        plan = on_corpus(plan, corpus)
        require_room(plan)
    report = on_progress or (lambda stage, progress: None)
    environment = _isa_environment(cache) if isinstance(study.trainer, Builtin) or study.pretrain else {}

    def pretrain(job: BranchJob) -> None:
        process = builtin_process(job, trainer=Builtin())
        done = _run({job.branch: process}, jobs=1, environment=environment, stage=Stage.FORK_POINT, report=report)
        if done[0].status is not Status.FINISHED:
            raise TrainError(f"the fork point could not be pretrained: {done[0].message}")

    fork_point = ensure_fork_point(study, corpus, sequence_length=plan.sequence_length, cache=cache, run=pretrain)
    share = share_of_cores(study.trainer, cores=cores, jobs=min(jobs, len(runs)))
    if isinstance(study.trainer, Builtin):
        processes = {
            name: builtin_process(job, trainer=study.trainer)
            for name, job in branch_jobs(plan, corpus, fork_point, share=share, runs=runs).items()
        }
    else:
        processes = {r.name: command_process(plan, r, fork_point=fork_point, threads=share) for r in runs}
    outcomes = _carry_out(study, processes, jobs=jobs, environment=environment, report=report, executor=executor)
    return TrainedStudy(plan=plan, fork_point=fork_point, outcomes=outcomes)


def train_jobs(
    study: Study,
    jobs: Mapping[str, BranchJob],
    *,
    at_once: int | None = None,
    cache: Path,
    on_progress: OnProgress | None = None,
    executor: Executor | None = None,
    may_diverge: bool = False,
) -> tuple[Outcome, ...]:
    """Train further jobs of a study, each with the threads that it names, here or on the machines of an executor.

    One that does not finish is an error; one that diverges is none where it may.
    """
    trainer = study.trainer
    assert isinstance(trainer, Builtin)
    outcomes = _carry_out(
        study,
        {
            name: builtin_process(dataclasses.replace(job, threads=job.threads or 1), trainer=trainer)
            for name, job in jobs.items()
        },
        jobs=at_once or evenly(len(jobs), cores=len(os.sched_getaffinity(0))),
        environment=_isa_environment(cache),
        report=on_progress or (lambda stage, progress: None),
        executor=executor,
    )
    fine = (Status.FINISHED, Status.DIVERGED) if may_diverge else (Status.FINISHED,)
    if broken := [o for o in outcomes if o.status not in fine]:
        reasons = "; ".join(f"{o.branch}: {o.message}" for o in broken)
        raise TrainError(f"{len(broken)} of {len(outcomes)} runs did not finish. {reasons}")
    return outcomes


def _carry_out(
    study: Study,
    processes: Mapping[str, BranchProcess],
    *,
    jobs: int,
    environment: Mapping[str, str],
    report: OnProgress,
    executor: Executor | None,
) -> tuple[Outcome, ...]:
    if executor is None:
        _require_one_node(study)
        return _run(processes, jobs=jobs, environment=environment, stage=Stage.BRANCHES, report=report)
    return run_branches(
        processes,
        environment=environment,
        executor=executor,
        report=lambda progress: report(Stage.BRANCHES, progress),
    )


def _wanted(study: Study, branches: Sequence[str] | None) -> list[str]:
    for name in branches or ():
        if name not in study.recipes:
            raise TrainError(f"there is no branch {name!r} in {study.path}: it has {', '.join(study.recipes)}")
    return [name for name in study.recipes if branches is None or name in branches]


def _require_trackers(study: Study) -> None:
    """Refuse a tracker that is not installed: accelerate would leave it out without a word."""
    for name in study.report_to:
        if importlib.util.find_spec(name) is None:
            raise TrainError(f"report_to names {name}, which is not installed: pip install {name}, or leave it out")


def branch_jobs(
    plan: Plan, corpus: Corpus | None, fork_point: Path, *, share: int, runs: Sequence[Run]
) -> dict[str, BranchJob]:
    """What the builtin trainer is told of these branches. Each gets up to its share of the cores."""
    from trajsoup.lm.job import BranchJob, fork_point_digest, token_file
    from trajsoup.lm.mixture import portions

    study, trainer = plan.study, plan.study.trainer
    assert isinstance(trainer, Builtin)
    if corpus is None:
        raise TrainError(f"{study.path}: the builtin trainer needs a corpus: add `corpus`")
    digest = fork_point_digest(fork_point)
    tokens = token_file(
        corpus.train.tokens, digest=corpus.train.digest, spare=study.output / "branches" / "train.tokens"
    )

    def threads(job: BranchJob) -> int:
        return threads_for(pass_flops=plan.model.flops_per_token * job.pass_tokens, share=share)

    jobs = [
        BranchJob(
            branch=run.name,
            folder=(study.output / "branches" / run.name).absolute(),
            fork_point=fork_point.absolute(),
            fork_point_digest=digest,
            tokens=tokens,
            recipe=study.recipes[run.branch],
            horizon=run.positions.horizon,
            checkpoint_every=run.positions.checkpoint_every,
            sequence_length=plan.sequence_length,
            micro_batch=trainer.micro_batch,
            precision=trainer.precision,
            sharding=trainer.sharding,
            dtype=plan.dtype,
            tokenizer=corpus.tokenizer.absolute(),
            report_to=study.report_to,
            mixture=portions(corpus.train, study.recipes[run.branch].sources, folder=study.output / "branches"),
        )
        for run in runs
    ]
    return {job.branch: dataclasses.replace(job, threads=threads(job)) for job in jobs}


def share_of_cores(trainer: TrainWith, *, cores: int, jobs: int) -> int:
    """Threads that each process may have: its share of what is declared, or else of this machine."""
    if trainer.cpus is not None:
        return max(int(trainer.cpus) // trainer.processes, 1)
    return max(cores // max(jobs, 1) // trainer.processes, 1)


def _require_one_node(study: Study) -> None:
    trainer = study.trainer
    if trainer.nodes > 1 and isinstance(trainer, Builtin) and trainer.launcher is None:
        raise TrainError(
            f"{study.path}: a branch takes {trainer.nodes} nodes, and this machine is one: use --engine ray, or a launcher "
            "that reaches them, such as `srun torchrun ...`"
        )


def _isa_environment(cache: Path) -> dict[str, str]:
    from trajsoup.lm.cpu_isa import isa_environment

    return isa_environment(cache=cache)


def _run(
    processes: Mapping[str, BranchProcess],
    *,
    jobs: int,
    environment: Mapping[str, str],
    stage: Stage,
    report: OnProgress,
) -> tuple[Outcome, ...]:
    """Run the processes, at most `jobs` together, in order. An interrupt stops them all; what they saved stays."""
    waiting = [p for p in processes.values() if p.finished is None]
    running: list[tuple[BranchProcess, Handle, LifeSigns]] = []
    outcomes: dict[str, Outcome] = {p.branch: p.finished for p in processes.values() if p.finished is not None}
    with contextlib.ExitStack() as stack:
        locks = {process.branch: stack.enter_context(only_one(process)) for process in waiting}
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    process = waiting.pop(0)
                    handle = start_branch(process, environment, lock=locks[process.branch])
                    running.append((process, handle, LifeSigns(process)))
                report(stage, [progress_of(p, running=any(p is r[0] for r in running)) for p in processes.values()])
                for one in list(running):
                    process, handle, signs = one
                    if signs.stalled():
                        end_branch(handle)
                    if (code := handle.poll()) is not None:
                        running.remove(one)
                        outcomes[process.branch] = signs.outcome(code=code)
                time.sleep(POLL_SECONDS)
            report(stage, [progress_of(p, running=False) for p in processes.values()])
        finally:
            stop_branches([handle for _, handle, _ in running])
    return tuple(outcomes[name] for name in processes)
