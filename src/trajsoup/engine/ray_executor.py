"""The executor on a Ray cluster: one that runs already, or one of this machine that is started and stopped here.

Ray places the workers and notices dead workers and nodes; how often a task is tried again is decided where it is for this
machine too (executor.Tally), so that both behave alike.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trajsoup.engine.executor import ATTEMPTS, Item, Needs, Result, Tally
from trajsoup.engine.ray_gang import map_gangs
from trajsoup.engine.ray_hands import end_hands, room_by_node, start_hand
from trajsoup.errors import ExecutorError, install

POLL_SECONDS = 0.5
IDLE_SECONDS = 60.0  # how long no machine may be there before we give up
AHEAD = 2  # tasks that a worker has, if its tasks are quick: the second hides the way there and back
QUICK_SECONDS = 0.5
PLENTY = 4  # items for each worker
STARTS = 3  # of Ray on this machine, where it says that it took too long
SLOW_START = "timed out during startup"
STILLBORN = 20  # workers that may end before they began, one after the other


@contextlib.contextmanager
def ray_executor(
    *,
    address: str | None = None,
    cpus: float = 1,
    workers: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[RayExecutor]:
    """Join the cluster at `address`, or start one on this machine for the time of the block.

    Each task asks for `cpus`. `environment` is set in the workers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None and "ray" not in sys.modules:
        _keep_to_this_machine()
    ray = _import_ray()
    joined = ray.is_initialized()
    if not joined:
        settings: dict[str, Any] = {"address": address} if address else _local(workers)
        try:
            _start(
                ray,
                **settings,
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"env_vars": dict(environment)} if environment else None,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ExecutorError(
                f"{_named(address)} cannot be reached ({_first_line(error)}): check its address"
            ) from error
    executor = RayExecutor(cpus=cpus, keep=address is None)  # others may wait for the room in a cluster that is shared
    try:
        yield executor
    except (ray.exceptions.RaySystemError, ray.exceptions.RpcError, ray.exceptions.LocalRayletDiedError) as error:
        raise ExecutorError(
            f"{_named(address)} is gone ({_first_line(error)}): start it again, then run the same command; what was "
            "finished is kept"
        ) from error
    finally:
        executor.end()
        if not joined:
            ray.shutdown()


def _keep_to_this_machine() -> None:
    """Settings of a cluster of our own. Ray reads them when it is imported."""
    if not os.environ.get("RAY_AUTH_MODE"):
        os.environ["RAY_AUTH_MODE"] = "token"  # one of its own, never written home
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # its name aside: without it 127.0.0.1 is replaced by an address that other machines reach
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _named(address: str | None) -> str:
    return f"the Ray cluster at {address}" if address else "the Ray cluster of this machine"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _start(ray: Any, **settings: Any) -> None:
    """Start or join Ray. It gives a node of its own 30 seconds, which a busy machine may not have: then once more."""
    for _ in range(STARTS):
        try:
            ray.init(**settings)
            return
        except Exception as error:  # Ray raises no narrower one
            if SLOW_START not in str(error):
                raise
            ray.shutdown()
    raise ExecutorError(
        f"Ray did not start on this machine, {STARTS} times: it is too busy; wait, or leave out --engine ray"
    )


def _local(workers: int | None) -> dict[str, Any]:
    return {
        "address": "local",
        "num_cpus": workers or len(os.sched_getaffinity(0)),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "object_store_memory": 80 << 20,  # paths and small records travel, weights do not
    }


@dataclass(slots=True, eq=False)
class _Worker:
    hand: Any
    place: Any  # reference: done when the worker is there
    ready: bool = False
    queue: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])  # reference, item; the first runs
    started: float = 0.0  # the first of the queue
    quick: bool = False  # its last task was

    @property
    def awaited(self) -> Any:
        return self.queue[0][0] if self.queue else self.place


class RayExecutor:
    """Workers on the cluster that ray is connected to."""

    def __init__(self, *, cpus: float = 1, keep: bool = True) -> None:
        """Each task asks for `cpus`. Workers that are kept are there for the next `map` with the same needs."""
        self.cpus, self.keep = cpus, keep
        self._workers: list[_Worker] = []
        self._needs: Needs | None = None

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
        """See `Executor.map`."""
        ray = _import_ray()
        needs = needs or Needs(cpus=self.cpus)
        tally = Tally(items, attempts=attempts, progress=progress)
        if needs != self._needs:
            self.end()
            self._needs = needs
        if needs.nodes > 1:
            return map_gangs(ray, function, tally=tally, needs=needs, timeout_seconds=timeout_seconds)
        try:
            self._work_off(ray, function, tally, needs, timeout_seconds)
        except BaseException:
            self._drop(ray, [w for w in self._workers if w.queue])
            raise
        finally:
            if not self.keep:
                self.end()
        return tally.results()

    def end(self) -> None:
        """End all workers."""
        self._drop(_import_ray(), self._workers)

    def _work_off(
        self, ray: Any, function: Callable[..., Any], tally: Tally, needs: Needs, timeout_seconds: float | None
    ) -> None:
        task = ray.put(function)
        slots, asked = sum(room_by_node(ray, needs)), time.monotonic()
        alone, stillborn, wrong = time.monotonic(), 0, None
        for worker in self._workers:  # kept from before: its node may have gone since
            worker.place, worker.ready, worker.quick = worker.hand.here.remote([task]), False, False
        kept = set(self._workers)
        while not tally.done:
            if time.monotonic() - asked > POLL_SECONDS:  # nodes come and go
                slots, asked = sum(room_by_node(ray, needs)), time.monotonic()
            self._hand_out(ray, task, tally, needs, slots=slots if stillborn <= STILLBORN else 0)
            awaited = [w.awaited for w in self._workers if w.queue or not w.ready]
            ready = set(ray.wait(awaited, num_returns=1, timeout=POLL_SECONDS)[0]) if awaited else set()
            if not awaited:
                time.sleep(POLL_SECONDS)
            for worker in [w for w in self._workers if w.awaited in ready]:
                if worker.ready:
                    self._take(ray, worker, tally)
                elif (wrong := self._has_come(ray, worker)) is None:
                    stillborn = 0
                elif worker not in kept:
                    stillborn += 1
            if wrong is not None and stillborn > STILLBORN and not self._workers:
                raise ExecutorError(
                    f"workers on the cluster end before they begin ({_first_line(wrong)}): is the same version installed "
                    "on every node?"
                ) from wrong
            self._end_late(ray, tally, timeout_seconds)
            if slots:  # others may hold them for a while
                alone = time.monotonic()
            elif time.monotonic() - alone > IDLE_SECONDS:
                raise ExecutorError(
                    f"no machine of the cluster has {needs.cpus:g} CPUs and {needs.gpus:g} GPUs to give: start one, "
                    "or ask for fewer"
                )

    def _hand_out(self, ray: Any, task: Any, tally: Tally, needs: Needs, *, slots: int) -> None:
        busy = sum(1 for w in self._workers if w.queue)
        for _ in range(min(slots, busy + tally.waiting) - len(self._workers)):
            hand = start_hand(ray, needs)
            self._workers.append(_Worker(hand, hand.here.remote([task])))
        plenty = tally.waiting >= PLENTY * len(self._workers)  # else one would wait while another worker is free
        for depth in range(AHEAD if plenty else 1):
            for worker in self._workers:
                if worker.ready and len(worker.queue) == depth and (depth == 0 or worker.quick):
                    if (number := tally.take()) is None:
                        break
                    if not worker.queue:
                        worker.started = time.monotonic()
                    worker.queue.append((worker.hand.again.remote(tally.items[number]), number))
        if not self.keep and not tally.waiting:
            self._drop(ray, [w for w in self._workers if not w.queue])

    def _has_come(self, ray: Any, worker: _Worker) -> Exception | None:
        try:
            ray.get(worker.place)
        except ray.exceptions.RayError as error:  # its node went while it started, or lacks the package
            self._drop(ray, [worker])
            return error
        worker.ready = True
        return None

    def _take(self, ray: Any, worker: _Worker, tally: Tally) -> None:
        reference, number = worker.queue.pop(0)
        now = time.monotonic()
        seconds, worker.started = now - worker.started, now
        worker.quick = seconds < QUICK_SECONDS
        try:
            result = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            tally.failed(number, error.cause if isinstance(error.cause, Exception) else error)
        except ray.exceptions.RayError as error:  # worker crashed, node died, out of memory
            self._lose(ray, worker, tally)
            tally.failed(number, ExecutorError(f"its worker was lost ({type(error).__name__})"))
        else:
            tally.succeeded(number, result, seconds=seconds)

    def _end_late(self, ray: Any, tally: Tally, timeout_seconds: float | None) -> None:
        now = time.monotonic()
        for worker in [w for w in self._workers if w.queue]:
            limit = tally.limit(worker.queue[0][1], timeout_seconds)
            if limit is not None and now - worker.started >= limit:
                _, number = worker.queue.pop(0)
                self._lose(ray, worker, tally)
                tally.failed(number, ExecutorError(f"it took more than {limit:g} s"))

    def _lose(self, ray: Any, worker: _Worker, tally: Tally) -> None:
        """What waited behind the task that failed is nobody's fault."""
        for _, number in worker.queue:
            tally.put_back(number)
        self._drop(ray, [worker])

    def _drop(self, ray: Any, workers: Sequence[_Worker]) -> None:
        gone = list(workers)
        self._workers = [w for w in self._workers if w not in gone]
        end_hands(ray, [w.hand for w in gone], [w.place for w in gone])


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ExecutorError(f"this needs Ray: {install('ray')}") from error
    return ray
