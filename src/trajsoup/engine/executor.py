"""Run one function over many items, wherever the machines are: the interface, and this machine's processes.

    items -> Executor.map -> results, in the order of the items

A task is a plain function of this package and an item that names paths: weights never travel. A task that dies (killed,
out of memory, node gone), hangs beyond its time or raises an unexpected error is run again, here or elsewhere; an error
that the user must mend is raised at once. So a task must give the same result when it is run twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar

from trajsoup.errors import ExecutorError, TrajsoupError

Item = TypeVar("Item")
Result = TypeVar("Result")
ATTEMPTS = 4
PR_SET_PDEATHSIG = 1  # of prctl(2)
TASK_SECONDS = 6 * 3600.0  # of a task that reads or scores: none takes so long, so one that does has hung
PATIENCE_SECONDS = 600.0  # no task of a limited time has hung before
PATIENCE = 20  # times the longest of its like: one that takes longer has hung


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one task asks for on each of its nodes."""

    cpus: float = 1
    gpus: float = 0
    nodes: int = 1  # more than one: a gang, with a member on each of so many nodes at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a gang, and where all of them meet."""

    rank: int = 0
    nodes: int = 1
    address: str = "127.0.0.1"  # of rank 0
    port: int | None = None  # free on the machine of rank 0; None: nobody else is to be met


class Executor(Protocol):
    """Where tasks run."""

    def map(
        self,
        function: Callable[..., Result],
        items: Sequence[Item],
        *,
        attempts: int = ATTEMPTS,
        timeout_seconds: float | None = None,
        needs: Needs | None = None,
        progress: Callable[[int, Result], None] = lambda number, result: None,
    ) -> list[Result]:
        """Return the results in the order of `items`. `progress` hears of each as it comes, with its item's number.

        A task that needs several nodes is called as `function(item, member)` on each; rank 0 gives the result.
        """
        ...


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    number: int | None = None  # of the item at work
    started: float = 0.0


class LocalExecutor:
    """Processes of this machine, started once and kept for the whole of a `with` block."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self._running: list[_Worker] = []

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._running:
            _kill(worker)
        self._running.clear()

    def map(
        self,
        function: Callable[..., Result],
        items: Sequence[Item],
        *,
        attempts: int = ATTEMPTS,
        timeout_seconds: float | None = None,
        needs: Needs | None = None,
        progress: Callable[[int, Result], None] = lambda number, result: None,
    ) -> list[Result]:
        """See `Executor.map`. CPUs are not counted: there are as many tasks at once as workers."""
        if needs is not None and needs.nodes > 1:
            raise ExecutorError(f"a task needs {needs.nodes} nodes, and this machine is one: use a Ray cluster")
        tally = Tally(items, attempts=attempts, progress=progress)
        try:
            while not tally.done:
                self._hand_out(tally, function)
                for worker, late in self._ended(tally, timeout_seconds):
                    self._take(worker, tally, late)
        except BaseException:
            for worker in [w for w in self._running if w.number is not None]:
                self._drop(worker)
            raise
        return tally.results()

    def _hand_out(self, tally: Tally, function: Callable[[Any], Any]) -> None:
        while len(self._running) < min(self.workers, tally.unfinished):
            self._running.append(_start())
        for worker in self._running:
            if worker.number is None and (number := tally.take()) is not None:
                worker.number, worker.started = number, time.monotonic()
                with contextlib.suppress(OSError):  # it died while idle: `_take` sees that
                    worker.connection.send((function, tally.items[number]))

    def _ended(self, tally: Tally, timeout_seconds: float | None) -> Iterator[tuple[_Worker, float | None]]:
        """Workers whose task is over; with the time limit, if that is why."""
        limits = {w.number: (w, tally.limit(w.number, timeout_seconds)) for w in self._running if w.number is not None}
        now = time.monotonic()
        left = [max(worker.started + limit - now, 0) for worker, limit in limits.values() if limit is not None]
        busy = [worker for worker, _ in limits.values()]
        ready = set(wait([w.connection for w in busy] + [w.process.sentinel for w in busy], min(left, default=None)))
        now = time.monotonic()
        for worker, limit in limits.values():
            if worker.connection in ready or worker.process.sentinel in ready:
                yield worker, None
            elif limit is not None and now - worker.started >= limit:
                yield worker, limit

    def _take(self, worker: _Worker, tally: Tally, late: float | None) -> None:
        number = worker.number
        assert number is not None
        try:
            if worker.connection.poll():
                error, result = worker.connection.recv()
                worker.number = None
                if error is not None:
                    tally.failed(number, error)
                else:
                    tally.succeeded(number, result, seconds=time.monotonic() - worker.started)
                return
        except (EOFError, OSError):
            pass
        self._drop(worker)
        code = worker.process.exitcode
        tally.failed(
            number,
            ExecutorError(f"its process ended with code {code}" if late is None else f"it took more than {late:g} s"),
        )

    def _drop(self, worker: _Worker) -> None:
        self._running.remove(worker)
        _kill(worker)


class Tally:
    """Which items are waiting, how often each failed, and what came of it: the same for every executor."""

    def __init__(self, items: Sequence[Any], *, attempts: int, progress: Callable[[int, Any], None]) -> None:
        self.items, self.attempts, self.progress = items, attempts, progress
        self._waiting = list(range(len(items)))
        self._failures = [0] * len(items)
        self._results: dict[int, Any] = {}
        self._longest: float | None = None

    @property
    def unfinished(self) -> int:
        """Items without a result."""
        return len(self.items) - len(self._results)

    @property
    def waiting(self) -> int:
        """Items that nobody works on."""
        return len(self._waiting)

    @property
    def done(self) -> bool:
        """Whether every item has its result."""
        return self.unfinished == 0

    def take(self) -> int | None:
        """The number of the next item to run."""
        return self._waiting.pop(0) if self._waiting else None

    def put_back(self, number: int) -> None:
        """It was taken and not tried."""
        self._waiting.insert(0, number)

    def limit(self, number: int, timeout_seconds: float | None) -> float | None:
        """How long a task may take: less than it was given, once others have shown how long they take.

        Tasks are not all alike, so an item that failed before has all the time.
        """
        if timeout_seconds is None or self._longest is None or self._failures[number]:
            return timeout_seconds
        return min(timeout_seconds, max(PATIENCE * self._longest, PATIENCE_SECONDS))

    def succeeded(self, number: int, result: Any, *, seconds: float) -> None:
        """An item has its result."""
        self._results[number] = result
        self._longest = max(seconds, self._longest or 0.0)
        self.progress(number, result)

    def failed(self, number: int, error: BaseException) -> None:
        """Queue an item again, or raise."""
        if isinstance(error, TrajsoupError) and not isinstance(error, ExecutorError):
            raise error  # trying again cannot mend it
        self._failures[number] += 1
        if self._failures[number] >= self.attempts:
            raise ExecutorError(
                f"task {number + 1} of {len(self.items)} failed {self.attempts} times, the last time because "
                f"{_because(error)}: look at that machine's memory, disk and log, then run again"
            ) from error
        self._waiting.append(number)

    def results(self) -> list[Any]:
        """All results, in the order of the items."""
        return [self._results[number] for number in range(len(self.items))]


def _because(error: BaseException) -> str:
    return str(error) if isinstance(error, ExecutorError) else f"of {type(error).__name__}: {error}"


def _start() -> _Worker:
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _kill(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.connection.close()


def _serve(connection: Connection) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends us
    if sys.platform == "linux":  # a parent that is killed cannot end us: then the kernel does
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, item = connection.recv()
            try:
                answer = (None, function(item))
            except Exception as error:  # noqa: BLE001  # the parent decides what it means
                answer = (error, None)
            connection.send(answer)
