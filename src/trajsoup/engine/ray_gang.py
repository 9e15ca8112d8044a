"""Tasks of several nodes on Ray: a placement group holds room on all of them, one member runs in each part of it.

    item -> placement group -> where rank 0 can be met -> members, all at once -> rank 0's result

Members live and die together: when one ends, the others get a short while, and what is then left is ended and the room
given back. A gang that lost a member is started anew, on whichever nodes there are.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trajsoup.engine.executor import Member, Needs, Tally
from trajsoup.engine.ray_hands import end_hands, room_by_node, start_hand
from trajsoup.errors import ExecutorError

POLL_SECONDS = 0.5
GRACE_SECONDS = 20.0  # after the first member ended
PLACE_SECONDS = 120.0  # how long no gang may find room, with none at work, before we give up


def map_gangs(
    ray: Any, function: Callable[..., Any], *, tally: Tally, needs: Needs, timeout_seconds: float | None
) -> list[Any]:
    """Run every item of `tally` as a gang; as many at once as the cluster has room for."""
    gangs: list[_Gang] = []
    alone = time.monotonic()
    try:
        while not tally.done:
            while (number := tally.take()) is not None:
                gangs.append(_Gang(ray, function, number, tally.items[number], needs))
            ray.wait([r for gang in gangs for r in gang.awaited], num_returns=1, timeout=POLL_SECONDS)
            for gang in list(gangs):
                if gang.go_on(tally.limit(gang.number, timeout_seconds)):
                    gangs.remove(gang)
                    gang.end()
                    gang.tell(tally)
            there = sum(1 for room in room_by_node(ray, needs) if room)
            if any(gang.members for gang in gangs) or there >= needs.nodes:  # others may hold them for a while
                alone = time.monotonic()
            elif time.monotonic() - alone > PLACE_SECONDS:
                raise ExecutorError(
                    f"the cluster has no {needs.nodes} nodes with {needs.cpus:g} CPUs and {needs.gpus:g} GPUs each: start "
                    "more, or ask for less under `trainer`"
                )
    finally:
        for gang in gangs:
            gang.end()
    return tally.results()


@dataclass(slots=True)
class _Gang:
    ray: Any
    function: Callable[..., Any]
    number: int
    item: Any
    needs: Needs
    group: Any = None
    hands: list[Any] = field(default_factory=list[Any])  # one on each node
    places: list[Any] = field(default_factory=list[Any])
    meeting: Any = None  # reference to the address and port of rank 0
    members: list[Any] = field(default_factory=list[Any])  # what the hands do
    ended: dict[int, Any] = field(default_factory=dict[int, Any])  # rank -> result or exception
    failed: Exception | None = None
    started: float = 0.0
    first_end: float | None = None

    def __post_init__(self) -> None:
        from ray.util.placement_group import placement_group

        bundle = {"CPU": self.needs.cpus, **({"GPU": self.needs.gpus} if self.needs.gpus else {})}
        self.group = placement_group([bundle] * self.needs.nodes, strategy="STRICT_SPREAD")
        self.hands = [self._hand(rank) for rank in range(self.needs.nodes)]
        self.places = [hand.here.remote() for hand in self.hands]
        self.meeting = self.hands[0].run.remote(meeting_point)

    @property
    def awaited(self) -> list[Any]:
        return [r for rank, r in enumerate(self.members) if rank not in self.ended] or [self.meeting]

    def go_on(self, timeout_seconds: float | None) -> bool:
        """Look what has happened; return whether the gang is over."""
        try:
            if not self.members:
                self._assemble()
                return False
        except self.ray.exceptions.RayError as error:
            self.failed = error
            return True
        now = time.monotonic()
        for rank, reference in enumerate(self.members):
            if rank not in self.ended and self.ray.wait([reference], timeout=0)[0]:
                self.ended[rank] = self._result(reference)
                self.first_end = self.first_end or now
        if timeout_seconds is not None and now - self.started >= timeout_seconds:
            self.failed = ExecutorError(f"it took more than {timeout_seconds:g} s")
            return True
        return len(self.ended) == len(self.members) or (
            self.first_end is not None and now - self.first_end >= GRACE_SECONDS
        )

    def tell(self, tally: Tally) -> None:
        """Rank 0 speaks for all. Without its word, any member's failure is the gang's."""
        wrong = [value for _, value in sorted(self.ended.items()) if isinstance(value, Exception)]
        if self.failed is None and 0 in self.ended and not isinstance(self.ended[0], Exception):
            tally.succeeded(self.number, self.ended[0], seconds=time.monotonic() - self.started)
        else:
            error = self.failed or (wrong[0] if wrong else ExecutorError("a member left the others waiting"))
            ray_error = isinstance(error, self.ray.exceptions.RayError)
            tally.failed(
                self.number, ExecutorError(f"a member was lost ({type(error).__name__})") if ray_error else error
            )

    def end(self) -> None:
        """End what still runs, and give the room back."""
        from ray.util.placement_group import remove_placement_group

        end_hands(self.ray, self.hands, self.places)
        with contextlib.suppress(Exception):
            remove_placement_group(self.group)

    def _assemble(self) -> None:
        if not self.ray.wait([self.meeting], timeout=0)[0]:
            return
        address, port = self.ray.get(self.meeting)
        self.started = time.monotonic()
        self.members = [
            hand.run.remote(
                self.function, self.item, Member(rank=rank, nodes=self.needs.nodes, address=address, port=port)
            )
            for rank, hand in enumerate(self.hands)
        ]

    def _hand(self, rank: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return start_hand(
            self.ray,
            self.needs,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=rank),
        )

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            return error.cause if isinstance(error.cause, Exception) else error
        except self.ray.exceptions.RayError as error:
            return error


def meeting_point() -> tuple[str, int]:
    """This node's address and a port that is free on it."""
    import ray.util

    address = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, probe.getsockname()[1]
