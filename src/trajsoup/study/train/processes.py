"""One branch as a process: what to start and where it writes, how it ended; started, held, ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from trajsoup.engine.executor import Member, Needs
from trajsoup.errors import HeldError, TrainError
from trajsoup.store.confined import append_own
from trajsoup.store.lock import holding
from trajsoup.study.train import tether
from trajsoup.study.train.forked import ForkedBranch, can_fork, fork_branch

MODULE = "trajsoup.lm.branch_process"
Handle = subprocess.Popen[bytes] | ForkedBranch
PATIENCE_SECONDS = 20  # a process that is asked to stop may finish what it writes
LOCK_SECONDS = 10  # the branches of a study that was just killed need a moment to end


class Status(StrEnum):
    """Where a branch stands at the end."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one branch ended."""

    branch: str
    status: Status
    tokens: int
    message: str | None = None  # why, and what to do, where it did not finish
    seconds: float | None = None  # of training in the last sitting; None where the trainer does not say
    saving_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchProcess:
    """What to start for one branch, where it writes, and how far it has to go."""

    branch: str
    words: tuple[str, ...]
    folder: Path
    horizon: int  # tokens
    checkpoint_every: int  # tokens
    step_tokens: int
    builtin: bool
    threads: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    needs: Needs = field(default_factory=Needs)
    stalled_after: float | None = None  # seconds without a sign of life
    finished: Outcome | None = None  # set where nothing is left to do

    @property
    def single(self) -> bool:
        """Whether it is one process of our own, which ends with its starter."""
        return self.builtin and self.words[0] == sys.executable and self.words[2] == MODULE

    @property
    def lock(self) -> Path:
        """Held by whoever trains the branch."""
        return self.folder / ".lock"

    @property
    def log(self) -> Path:
        """What the process prints."""
        return self.folder / "train.log"


def start_branch(
    process: BranchProcess, environment: Mapping[str, str], *, lock: int | None = None, member: Member | None = None
) -> Handle:
    """Start a branch, or one node's part of it, in a session of its own, its output in its log.

    It holds the open file `lock` as long as it lives.
    """
    member = member or Member()
    process.folder.mkdir(parents=True, exist_ok=True)
    if member.rank == 0:
        (process.folder / "outcome.json").unlink(missing_ok=True)
    full = {
        # threads that wait asleep: those that spin make a busy machine several times slower
        "OMP_WAIT_POLICY": "passive",
        **os.environ,
        "TOKENIZERS_PARALLELISM": "false",
        "TRAJSOUP_PARENT": str(os.getpid()),
        # ours only for ours: a command of somebody else's environment must not find our packages
        **({"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} if process.words[0] == sys.executable else {}),
        **environment,
        **({} if process.single else _meeting(member)),
        "OMP_NUM_THREADS": str(process.threads),
        "MKL_NUM_THREADS": str(process.threads),
        **dict(process.environment),
    }
    if shutil.which(process.words[0], path=full.get("PATH")) is None:
        raise TrainError(
            f"branch {process.branch!r}: cannot start {process.words[0]!r}: there is no such program: check the command"
        )
    words = process.words if process.single else (sys.executable, tether.__file__, *process.words)
    with append_own(process.log) as log:
        if process.single and can_fork():
            return fork_branch(words[3:], full, files=[log.fileno(), *(() if lock is None else (lock,))])
        # a session of its own, so that an interrupt reaches it from here alone, together with its children
        return subprocess.Popen(
            words,
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )


def _meeting(member: Member) -> dict[str, str]:
    """Where the processes of a branch meet, under the names that torchrun and other launchers read."""
    port = member.port
    if port is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    values = {"NNODES": member.nodes, "NODE_RANK": member.rank, "MASTER_ADDR": member.address, "MASTER_PORT": port}
    found = {f"{prefix}{name}": str(value) for name, value in values.items() for prefix in ("", "PET_")}
    return found | ({"GLOO_SOCKET_IFNAME": "lo"} if member.address == "127.0.0.1" else {})


def end_branch(handle: Handle) -> None:
    """End a process that hangs, and its children: it would not hear a request."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(handle.pid, signal.SIGKILL)
    handle.wait()


def stop_branches(handles: Sequence[Handle]) -> None:
    """Ask them to stop, and insist after a while. What they started and left behind ends too."""
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(handle.pid, signal.SIGTERM)
    for handle in handles:
        with contextlib.suppress(subprocess.TimeoutExpired):
            handle.wait(PATIENCE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(handle.pid, signal.SIGKILL)
        handle.wait()


@contextlib.contextmanager
def only_one(process: BranchProcess) -> Iterator[int]:
    """Hold the branch, so that two trainings never write into one folder. Yields what the branch's process inherits."""
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(holding(process.lock, patience_seconds=LOCK_SECONDS))
        except HeldError as error:
            raise TrainError(
                f"branch {process.branch!r} is being trained by {error}: wait for it, or stop it first"
            ) from error
        yield lock
