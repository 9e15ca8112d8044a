"""Workers on Ray: processes that are asked to run one function after another, and can be ended at any moment.

They are actors. A plain task can only be ended by `ray.cancel`, and a task that begins to run while it is cancelled
takes the whole driver with it (Ray 2.60: "Tried to complete task that was not pending").
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from trajsoup.engine.executor import Needs

END_SECONDS = 10.0  # how long what was ended may take to be gone


class Hand:
    """Lives in a process of its own, somewhere in the cluster."""

    _known: Sequence[Any] = ()
    _function: Callable[..., Any] | None = None

    def here(self, known: Sequence[Any] = ()) -> tuple[str, int]:
        """The node and the process. What is `known` is a reference to the function that `again` runs."""
        import ray

        self._known, self._function = known, None
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it."""
        return function(*arguments)

    def again(self, *arguments: Any) -> Any:
        """Run the function that is known. It is fetched once: with every quick task it would double what that costs."""
        import ray

        function = self._function or ray.get(list(self._known))[0]
        self._function = function
        return function(*arguments)


def start_hand(ray: Any, needs: Needs, **where: Any) -> Any:
    """Ask for a worker. It holds what it needs until it is ended."""
    actor = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus or None, max_restarts=0, max_task_retries=0, **where)
    return actor(Hand).remote()


def room_by_node(ray: Any, needs: Needs) -> list[int]:
    """How many workers each node could hold if it were empty."""
    found: list[int] = []
    for there in (node["Resources"] for node in ray.nodes() if node["Alive"]):
        room = there.get("CPU", 0) / needs.cpus
        found.append(int(min(room, there.get("GPU", 0) / needs.gpus) if needs.gpus else room))
    return found


def end_hands(ray: Any, hands: Sequence[Any], places: Sequence[Any]) -> None:
    """End workers, and wait until those of this machine have: what they wrote may be removed next.

    `places` are references to what `Hand.here` said, or will never say.
    """
    for hand in hands:
        with contextlib.suppress(Exception):
            ray.kill(hand)
    with contextlib.suppress(Exception):
        known, _ = ray.wait(list(places), num_returns=len(places), timeout=0)
        here = ray.get_runtime_context().get_node_id()
        deadline = time.monotonic() + END_SECONDS
        for place in known:
            with contextlib.suppress(ray.exceptions.RayError):
                node, process = ray.get(place)
                while node == here and _lives(process) and time.monotonic() < deadline:
                    time.sleep(0.005)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
