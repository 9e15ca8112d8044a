"""How far a branch is, and how it ended: read from what its process leaves in the branch's folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trajsoup.errors import ScanError, TrainError
from trajsoup.store.json_file import decode_json, read_json
from trajsoup.store.publish import write_atomic
from trajsoup.store.regular import opened, read_small
from trajsoup.store.runs import scan_run
from trajsoup.study.train.processes import BranchProcess, Outcome, Status

OUTCOME = "outcome.json"
METRICS = "metrics.jsonl"
TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """outcome.json, as the branch's process leaves it."""

    status: Status
    tokens: int = 0
    horizon: int = 0
    message: str | None = None
    seconds: float | None = None
    saving_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRow:
    """A line of metrics.jsonl, whoever wrote it."""

    tokens: float | None = None
    step: float | None = None
    train_loss: float | None = None
    loss: float | None = None
    tokens_per_second: float | None = None

    @property
    def training_loss(self) -> float | None:
        """Under either name."""
        return self.loss if self.train_loss is None else self.train_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line of the live display."""

    branch: str
    running: bool
    tokens: int
    horizon: int
    train_loss: float | None
    tokens_per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        """At the present speed."""
        return (self.horizon - self.tokens) / self.tokens_per_second if self.tokens_per_second else None


def progress_of(process: BranchProcess, *, running: bool) -> Progress:
    """Read how far a branch is from the last line of its metrics."""
    row = _last_row(process.folder / METRICS)
    tokens = row.step * process.step_tokens if row.tokens is None and row.step is not None else row.tokens
    return Progress(
        branch=process.branch,
        running=running,
        tokens=int(tokens or 0),
        horizon=process.horizon,
        train_loss=row.training_loss,
        tokens_per_second=row.tokens_per_second,
    )


def outcome_of(process: BranchProcess, *, code: int) -> Outcome:
    """Say how a process ended. A command's checkpoints are found by the scan that finds those of foreign runs."""
    if process.builtin:
        end = end_of(process.folder)
        if end is None:
            return _failed(process, code)
        if end.status is Status.FINISHED and code == 0:
            return finished_outcome(process.branch, process.folder, horizon=process.horizon) or _failed(process, code)
        return Outcome(branch=process.branch, status=end.status, tokens=_reached(process), message=end.message)
    if code != 0:
        return _failed(process, code)
    try:
        last = scan_run(process.folder, tokens_per_step=process.step_tokens).checkpoints[-1]
    except ScanError as error:
        return Outcome(
            branch=process.branch,
            status=Status.FAILED,
            tokens=0,
            message=f"the command ended well, but its checkpoints cannot be found: {error}",
        )
    tokens = last.tokens or 0
    # a script may count its last batches otherwise (a short one at the end of an epoch): nearly there is there
    if tokens <= process.horizon - process.checkpoint_every / 2:
        return Outcome(
            branch=process.branch,
            status=Status.FAILED,
            tokens=tokens,
            message=f"the command ended at {tokens:,} of {process.horizon:,} tokens: check its number of steps",
        )
    record = {"status": "finished", "tokens": tokens, "horizon": process.horizon}
    write_atomic(process.folder / OUTCOME, json.dumps(record, indent=1) + "\n")
    return Outcome(branch=process.branch, status=Status.FINISHED, tokens=tokens)


def finished_outcome(branch: str, folder: Path, *, horizon: int) -> Outcome | None:
    """The recorded end of a branch that has reached its horizon, or None."""
    end = end_of(folder)
    if end is None or end.status is not Status.FINISHED or end.horizon < horizon:
        return None
    return Outcome(
        branch=branch,
        status=Status.FINISHED,
        tokens=end.tokens,
        seconds=end.seconds,
        saving_seconds=end.saving_seconds,
    )


def recorded(folder: Path) -> bool:
    """Whether the builtin trainer has written down how the branch ended."""
    return end_of(folder) is not None


def _failed(process: BranchProcess, code: int) -> Outcome:
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    tail = _tail(process.log)
    return Outcome(
        branch=process.branch,
        status=Status.FAILED,
        tokens=_reached(process),
        message=f"the process {how}{f' ({tail})' if tail else ''}: see {process.log}, then run the same command to resume",
    )


def _reached(process: BranchProcess) -> int:
    return progress_of(process, running=False).tokens


def _tail(log: Path) -> str | None:
    """The last line that says something."""
    try:
        with opened(log) as file:
            file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), None)


def _last_row(path: Path) -> LoggedRow:
    """The newest whole line of metrics.jsonl, without reading all of it."""
    try:
        with opened(path) as file:
            file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
            lines = file.read().splitlines()
    except OSError:
        return LoggedRow()
    return next(_rows(reversed(lines)), LoggedRow())


def logged_rows(path: Path) -> list[LoggedRow]:
    """Every whole line of metrics.jsonl."""
    return list(_rows(read_small(path).splitlines()))


def _rows(lines: Iterable[bytes]) -> Iterator[LoggedRow]:
    for line in lines:
        with contextlib.suppress(TrainError):  # being written
            yield decode_json(line, LoggedRow, where=METRICS, cure="wait", error=TrainError, nan=True)


def end_of(folder: Path) -> End | None:
    """How the branch ended; None where that is not written down."""
    with contextlib.suppress(TrainError):
        return read_json(folder / OUTCOME, End, cure="train the branch again", error=TrainError, nan=True)
    return None
