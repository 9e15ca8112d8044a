"""Branches as tasks of an executor: each runs on whichever machine takes it, and goes on from its last state if that dies.

The study's folder is one that all machines see. A branch process ends with the worker that started it, so a branch that
is tried again elsewhere never has a twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trajsoup.engine.executor import Executor
from trajsoup.errors import ExecutorError
from trajsoup.study.branch_commands import BranchProcess
from trajsoup.study.outcomes import Outcome, Status, outcome_of
from trajsoup.study.train import start_branch, stop_branches


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTask:
    """One branch, for one machine."""

    process: BranchProcess
    environment: Mapping[str, str]


def run_branches(
    processes: Mapping[str, BranchProcess], *, environment: Mapping[str, str], executor: Executor
) -> tuple[Outcome, ...]:
    """Run all that are not finished; outcomes come in the order of `processes`."""
    tasks = [BranchTask(process=p, environment=environment) for p in processes.values() if p.finished is None]
    outcomes = {p.branch: p.finished for p in processes.values() if p.finished is not None}
    outcomes |= {outcome.branch: outcome for outcome in executor.map(run_branch, tasks)}
    return tuple(outcomes[name] for name in processes)


def run_branch(task: BranchTask) -> Outcome:
    """Start the branch's process here and wait for it. One that was killed is worth another attempt."""
    handle = start_branch(task.process, task.environment)
    try:
        code = handle.wait()
    finally:
        if handle.poll() is None:
            stop_branches([handle])
    outcome = outcome_of(task.process, code=code)
    if code < 0 and outcome.status is Status.FAILED:
        raise ExecutorError(f"the process of branch {outcome.branch!r} was killed by signal {-code}")
    return outcome
