"""Branches as tasks of an executor: each runs on the machine or machines that take it, and goes on from its last state
if one of them dies.

    processes -> tasks -> lock, process, signs of life -> Outcome; meanwhile progress is read from the branches' folders

The study's folder is one that all machines see. A branch process ends with the worker that started it, and a worker that
comes after waits for the branch's lock, so a branch that is tried again elsewhere never has a twin.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trajsoup.engine.executor import Executor, Member
from trajsoup.errors import ExecutorError, HeldError
from trajsoup.store.lock import holding, owner_of
from trajsoup.study.train.life_signs import LifeSigns
from trajsoup.study.train.outcomes import Progress, progress_of, recorded
from trajsoup.study.train.processes import (
    BranchProcess,
    Handle,
    Outcome,
    Status,
    end_branch,
    start_branch,
    stop_branches,
)

PATIENCE_SECONDS = 120.0  # for the lock of a branch whose machine is gone: a file server may keep it for a minute
REPORT_SECONDS = 1.0
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTask:
    """One branch, for one machine or one gang of them."""

    process: BranchProcess
    environment: Mapping[str, str]


def run_branches(
    processes: Mapping[str, BranchProcess],
    *,
    environment: Mapping[str, str],
    executor: Executor,
    report: Callable[[Sequence[Progress]], None] = lambda progress: None,
) -> tuple[Outcome, ...]:
    """Run all that are not finished; outcomes come in the order of `processes`."""
    tasks = [BranchTask(process=p, environment=environment) for p in processes.values() if p.finished is None]
    outcomes = {p.branch: p.finished for p in processes.values() if p.finished is not None}
    if tasks:
        with _reporting(processes, report):
            found = executor.map(run_branch, tasks, needs=tasks[0].process.needs)
        outcomes |= {outcome.branch: outcome for outcome in found}
    return tuple(outcomes[name] for name in processes)


def run_branch(task: BranchTask, member: Member | None = None) -> Outcome:
    """Start the branch's process here and wait for it. One that was killed or hung is worth another attempt."""
    process, rank = task.process, member.rank if member else 0
    with contextlib.ExitStack() as stack:
        lock = None
        if rank == 0:
            try:
                lock = stack.enter_context(holding(process.lock, patience_seconds=PATIENCE_SECONDS))
            except HeldError as error:
                raise ExecutorError(f"branch {process.branch!r} is still being trained by {error}") from error
        handle = start_branch(process, task.environment, lock=lock, member=member)
        signs = LifeSigns(process)
        try:
            code = _wait(handle, signs)
        finally:
            if handle.poll() is None:
                stop_branches([handle])
        outcome = signs.outcome(code=code)
    if outcome.status is Status.FAILED and _worth_another(process, code):
        raise ExecutorError(f"the process of branch {outcome.branch!r} {_how(code)}: {outcome.message}")
    return outcome


def _wait(handle: Handle, signs: LifeSigns) -> int:
    while True:
        try:
            return handle.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if signs.stalled():
                end_branch(handle)
                raise ExecutorError(signs.words) from None


def _worth_another(process: BranchProcess, code: int) -> bool:
    """Not where the trainer itself says why it ended. Without a word, a fault of the machine is likelier."""
    if process.builtin:
        return not recorded(process.folder)
    return code < 0 or code > 128 or process.needs.nodes > 1


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


@contextlib.contextmanager
def _reporting(processes: Mapping[str, BranchProcess], report: Callable[[Sequence[Progress]], None]) -> Iterator[None]:
    """Tell how far every branch is, from what it leaves on the shared storage."""
    over = threading.Event()

    def tell(*, last: bool = False) -> None:
        report([progress_of(p, running=not last and owner_of(p.lock) is not None) for p in processes.values()])

    def keep_telling() -> None:
        while not over.wait(REPORT_SECONDS):
            tell()

    teller = threading.Thread(target=keep_telling, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
    tell(last=True)
