"""The executor on a Ray cluster: one that runs already, or one of this machine that is started and stopped here.

Ray places the tasks and notices dead workers and nodes; how often a task is tried again is decided where it is for this
machine too (executor.Tally), so that both behave alike.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trajsoup.engine.executor import ATTEMPTS, Item, Needs, Result, Tally
from trajsoup.engine.ray_gang import cancel_all, map_gangs
from trajsoup.errors import ExecutorError

POLL_SECONDS = 0.5
IDLE_SECONDS = 60.0  # how long no machine may be there before we give up
LONG_SECONDS = 60.0  # a time limit beside which the wait for a worker is small


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
            ray.init(
                **settings,
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"env_vars": dict(environment)} if environment else None,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ExecutorError(
                f"{_named(address)} cannot be reached ({_first_line(error)}): check its address"
            ) from error
    try:
        yield RayExecutor(cpus=cpus)
    except (ray.exceptions.RaySystemError, ray.exceptions.RpcError, ray.exceptions.LocalRayletDiedError) as error:
        raise ExecutorError(
            f"{_named(address)} is gone ({_first_line(error)}): start it again, then run the same command; what was "
            "finished is kept"
        ) from error
    finally:
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


def _local(workers: int | None) -> dict[str, Any]:
    return {
        "address": "local",
        "num_cpus": workers or len(os.sched_getaffinity(0)),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "object_store_memory": 80 << 20,  # paths and small records travel, weights do not
    }


class RayExecutor:
    """Tasks on the cluster that ray is connected to."""

    def __init__(self, *, cpus: float = 1) -> None:
        self.cpus = cpus

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
        if needs.nodes > 1:
            return map_gangs(ray, function, tally=tally, needs=needs, timeout_seconds=timeout_seconds)
        task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus or None, max_retries=0, retry_exceptions=False)(
            function
        )
        running: dict[Any, tuple[int, float]] = {}
        alone = asked = time.monotonic()
        # A queue of two hides the way there and back. The second waits at most as long as the first may take.
        ahead = 2 if timeout_seconds is None or timeout_seconds >= LONG_SECONDS else 1
        limit = None if timeout_seconds is None else ahead * timeout_seconds
        slots = ahead * self._slots(ray, needs)
        try:
            while not tally.done:
                if time.monotonic() - asked > POLL_SECONDS:  # nodes come and go
                    slots, asked = ahead * self._slots(ray, needs), time.monotonic()
                if slots or running:
                    alone = time.monotonic()
                elif time.monotonic() - alone > IDLE_SECONDS:
                    raise ExecutorError(
                        f"no machine of the cluster has {needs.cpus:g} CPUs and {needs.gpus:g} GPUs to give: start one, "
                        "or ask for fewer"
                    )
                while len(running) < slots and (number := tally.take()) is not None:
                    running[task.remote(items[number])] = (number, time.monotonic())
                if not running:
                    time.sleep(POLL_SECONDS)
                    continue
                ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
                for reference in ready:
                    self._take(ray, reference, running.pop(reference)[0], tally)
                self._end_late(ray, running, tally, limit)
        finally:
            cancel_all(ray, list(running))
        return tally.results()

    def _take(self, ray: Any, reference: Any, number: int, tally: Tally) -> None:
        try:
            result = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            tally.failed(number, error.cause if isinstance(error.cause, Exception) else error)
        except ray.exceptions.RayError as error:  # worker crashed, node died, out of memory
            tally.failed(number, ExecutorError(f"its worker was lost ({type(error).__name__})"))
        else:
            tally.succeeded(number, result)

    def _end_late(self, ray: Any, running: dict[Any, tuple[int, float]], tally: Tally, limit: float | None) -> None:
        now = time.monotonic()
        for reference, (number, started) in list(running.items()):
            if limit is not None and now - started >= limit:
                del running[reference]
                with contextlib.suppress(Exception):
                    ray.cancel(reference, force=True)
                tally.failed(number, ExecutorError(f"it took more than {limit:g} s"))

    def _slots(self, ray: Any, needs: Needs) -> int:
        """Tasks the cluster can run at once: more than twice as many would wait in a queue while their time runs."""
        there = ray.cluster_resources()
        room = there.get("CPU", 0) / needs.cpus
        return int(min(room, there.get("GPU", 0) / needs.gpus) if needs.gpus else room)


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ExecutorError("this needs Ray: pip install 'trajectory-soup[ray]'") from error
    return ray
