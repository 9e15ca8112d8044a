"""Time, cost and disk of studies too large to try here: a simulation from stated rates.

    python benchmarks/scale.py

    shard tasks -> nodes (bandwidth, stragglers, failures) -> makespan

Every task reads its part of M checkpoints and writes one output shard. A node has so many bytes per second; one in some
is a straggler; a node fails at random and its tasks start again elsewhere. The rates below are assumptions about
hardware: whether a node's kernels keep up with its storage is what benchmarks/blend.py and gram.py measure. Nothing
printed here was measured on a cluster.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One node, as assumed."""

    read_bytes: float = 5e9  # per second, from shared storage
    write_bytes: float = 2.5e9
    startup_seconds: float = 3.0  # of one task: process, headers
    straggler_share: float = 0.05
    straggler_factor: float = 3.0
    failures_per_hour: float = 0.002
    detect_seconds: float = 30.0
    dollars_per_hour: float = 2.0  # a storage node without GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What is blended."""

    name: str
    parameters: float
    branches: int
    checkpoints: int  # saved by each branch
    k: int
    bytes_each: float = 2.0  # bf16
    shard_bytes: float = 5e9

    @property
    def checkpoint_bytes(self) -> float:
        return self.parameters * self.bytes_each

    @property
    def disk_bytes(self) -> float:
        return self.checkpoint_bytes * self.branches * self.checkpoints


def makespan(merge: Merge, hardware: Hardware, *, nodes: int, members: int, seed: int = 0) -> tuple[float, int]:
    """Seconds until the last shard is written, and tasks that were run again."""
    chance = random.Random(seed)
    tasks = max(round(merge.checkpoint_bytes / merge.shard_bytes), 1)
    shard = merge.checkpoint_bytes / tasks
    speed = [1 / hardware.straggler_factor if chance.random() < hardware.straggler_share else 1.0 for _ in range(nodes)]
    free = [(0.0, node) for node in range(nodes)]
    again, end, left = 0, 0.0, tasks
    while left:
        now, node = heapq.heappop(free)
        work = (members * shard / hardware.read_bytes + shard / hardware.write_bytes) / speed[node]
        work += hardware.startup_seconds
        dies = chance.expovariate(hardware.failures_per_hour / HOUR)
        if dies < work:
            again += 1
            heapq.heappush(free, (now + dies + hardware.detect_seconds, node))  # the task goes back to the queue
            continue
        left -= 1
        end = max(end, now + work)
        heapq.heappush(free, (now + work, node))
    return end, again


def main() -> None:
    hardware = Hardware()
    studies = [
        Merge(name="paper: 5 x 24 x 7.9B", parameters=7.9e9, branches=5, checkpoints=24, k=4),
        Merge(name="1T: 5 x 24 x 1T", parameters=1e12, branches=5, checkpoints=24, k=4),
    ]
    print("| study | disk | nodes | soup N*K=20 | Gram of 120 | dollars for both | tasks run again |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for merge in studies:
        for nodes in (1, 4, 16, 64):
            soup, again = makespan(merge, hardware, nodes=nodes, members=merge.branches * merge.k)
            gram, more = makespan(merge, hardware, nodes=nodes, members=merge.branches * merge.checkpoints, seed=1)
            cost = (soup + gram) / HOUR * nodes * hardware.dollars_per_hour
            print(
                f"| {merge.name} | {merge.disk_bytes / 1e12:,.1f} TB | {nodes} | {_time(soup)} | {_time(gram)} | "
                f"{cost:,.2f} | {again + more} |"
            )


def _time(seconds: float) -> str:
    return (
        f"{seconds:,.0f} s"
        if seconds < 600
        else f"{seconds / 60:,.0f} min"
        if seconds < 3 * HOUR
        else f"{seconds / HOUR:.1f} h"
    )


if __name__ == "__main__":
    main()
