"""Time, cost and disk of studies too large to try here: measured kernels on stated hardware, simulated.

    python benchmarks/scale.py             # the tables of docs/scale.md, from benchmarks/results/rates.json
    python benchmarks/scale.py --measure   # measure the kernels of this machine anew, into rates.json
    python benchmarks/scale.py --write     # put the tables into docs/scale.md; a test keeps the two equal

    shard tasks -> nodes (cores, bandwidth, stragglers, failures) -> makespan

Measured: seconds of one core for a gigabyte of input, of the blend with all digests and of the Gram pass, for the numbers of
checkpoints in question, and of receiving it from a bucket (rclone on loopback). Stated: everything in `Hardware`. No cluster
was at hand: nothing here was measured on one.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
RATES = ROOT / "benchmarks" / "results" / "rates.json"
PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- scale.py -->\n", "<!-- end of scale.py -->\n"
HOUR = 3600.0
SIMULATIONS = 21
RECEIVED_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One node, as stated: a storage node without GPUs."""

    cores: int = 32
    read_bytes: float = 5e9  # per second, from a bucket
    write_bytes: float = 2.5e9
    startup_seconds: float = 3.0  # of one task: process, headers
    straggler_share: float = 0.05
    straggler_factor: float = 3.0
    failures_per_hour: float = 0.02  # each node, once in 50 hours
    detect_seconds: float = 30.0
    dollars_per_hour: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is blended."""

    name: str
    parameters: float
    branches: int = 5
    checkpoints: int = 24  # saved by each branch
    k: int = 4
    shard_bytes: float = 2e9  # of one task

    @property
    def checkpoint_bytes(self) -> float:
        return self.parameters * 2  # bf16

    @property
    def disk_bytes(self) -> float:
        return self.checkpoint_bytes * self.branches * self.checkpoints


STUDIES = (
    Study(name="paper: 5 x 24 x 7.9B", parameters=7.9e9),
    Study(name="1T: 5 x 24 x 1T", parameters=1e12),
)


def makespan(
    study: Study, hardware: Hardware, *, nodes: int, members: int, core_seconds: float, writes: bool, seed: int
) -> tuple[float, int]:
    """Seconds until the last task is done, and tasks that were run again. `core_seconds` are for a GB of input."""
    chance = random.Random(seed)
    tasks = max(round(study.checkpoint_bytes / study.shard_bytes), 1)
    shard = study.checkpoint_bytes / tasks
    reading = members * shard / hardware.read_bytes
    computing = members * shard / 1e9 * core_seconds / hardware.cores
    writing = shard / hardware.write_bytes if writes else 0.0
    work = max(reading, computing, writing)  # a pass reads, computes and writes at once
    slow = [chance.random() < hardware.straggler_share for _ in range(nodes)]
    free = [(0.0, node) for node in range(nodes)]
    again, end, left = 0, 0.0, tasks
    while left:
        now, node = heapq.heappop(free)
        takes = work * (hardware.straggler_factor if slow[node] else 1.0) + hardware.startup_seconds
        dies = chance.expovariate(hardware.failures_per_hour / HOUR)
        if dies < takes:
            again += 1
            heapq.heappush(free, (now + dies + hardware.detect_seconds, node))  # the task goes back to the queue
            continue
        left -= 1
        end = max(end, now + takes)
        heapq.heappush(free, (now + takes, node))
    return end, again


def tables() -> str:
    """Everything that docs/scale.md says in numbers."""
    rates, hardware = json.loads(RATES.read_text()), Hardware()
    receive, blend, gram = (rates[f"{what}_core_seconds_per_gb"] for what in ("receive", "blend", "gram"))
    lines = [
        f"Measured on {rates['machine']}: a core blends 20 checkpoints, digests of everything included, in {blend:.2f} s for "
        f"each GB of input, computes the Gram matrix of 120 in {gram:.2f} s, and receives a GB from a bucket in "
        f"{receive:.2f} s.",
        "",
        f"Stated: nodes of {hardware.cores} such cores that read {hardware.read_bytes / 1e9:g} GB/s from a bucket and write "
        f"{hardware.write_bytes / 1e9:g} GB/s to it, {hardware.straggler_share:.0%} of them "
        f"{hardware.straggler_factor:g} times slower, each failing once in {1 / hardware.failures_per_hour:g} hours "
        f"(noticed after {hardware.detect_seconds:g} s), "
        f"{hardware.dollars_per_hour:g} dollars an hour; {hardware.startup_seconds:g} s "
        f"to start a task. Median of {SIMULATIONS} simulations, and the worst.",
        "",
        _bottleneck(hardware, receive=receive, blend=blend, gram=gram),
        "",
        "| study | checkpoints | nodes | soup of N*K = 20 | worst | Gram of 120 | worst | dollars for both | again, worst |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for study in STUDIES:
        for nodes in (1, 4, 16, 64):

            def many(
                members: int, rate: float, writes: bool, study: Study = study, nodes: int = nodes
            ) -> tuple[float, float, int]:
                runs = [
                    makespan(study, hardware, nodes=nodes, members=members, core_seconds=rate, writes=writes, seed=seed)
                    for seed in range(SIMULATIONS)
                ]
                ends = [end for end, _ in runs]
                return statistics.median(ends), max(ends), max(again for _, again in runs)

            soup, soup_worst, again = many(study.branches * study.k, receive + blend, True)
            geometry, geometry_worst, more = many(study.branches * study.checkpoints, receive + gram, False)
            cost = (soup + geometry) / HOUR * nodes * hardware.dollars_per_hour
            lines.append(
                f"| {study.name} | {study.disk_bytes / 1e12:,.1f} TB | {nodes} | {_time(soup)} | {_time(soup_worst)} | "
                f"{_time(geometry)} | {_time(geometry_worst)} | {cost:,.2f} | {again + more} |"
            )
    return "\n".join(lines) + "\n"


def _bottleneck(hardware: Hardware, *, receive: float, blend: float, gram: float) -> str:
    """What a node does longest with a GB of input."""
    takes = {
        "reading": 1e9 / hardware.read_bytes,
        "receiving": receive / hardware.cores,
        "blending": blend / hardware.cores,
        "the Gram pass": gram / hardware.cores,
    }
    longest = max(takes, key=takes.__getitem__)
    said = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in takes.items())
    return f"For a GB of input a node needs: {said}. The bottleneck is {longest}."


def page_with_tables(text: str) -> str:
    """The page with what stands between the marks made anew."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + tables() + "\n" + END + rest.partition(END)[2]


def measure(megabytes: int) -> None:
    """Seconds of processor time for a GB of input, one worker, files in the page cache."""
    import pytest

    sys.path.insert(0, str(ROOT))
    from tests.object_store import s3_server, use_endpoint

    from trajsoup.engine.gram import gram
    from trajsoup.engine.workers import REMOTE_BLOCK_BYTES, Options
    from trajsoup.merge.make import make_soup
    from trajsoup.merge.plan import explicit_row, plan_row
    from trajsoup.store.checkpoint import open_checkpoint
    from trajsoup.store.remote import place
    from trajsoup.store.source import aligned_buffer, open_source

    one = Options(workers=1, direct=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [_write(folder / f"c{i}", megabytes, seed=i) for i in range(120)]
        plan = plan_row(explicit_row([(str(path), 1 / 20) for path in paths[:20]]))
        every = {path.name: open_checkpoint(path) for path in paths}

        def rate(action: Callable[[int], object], nbytes: int) -> float:
            action(0)  # loads the kernels
            found = []
            for i in range(1, 3):
                start = time.process_time()
                action(i)
                found.append((time.process_time() - start) / nbytes * 1e9)
            return round(min(found), 3)

        ranges = range(0, RECEIVED_BYTES, REMOTE_BLOCK_BYTES)
        with s3_server(folder / "s3") as server, pytest.MonkeyPatch.context() as patch:
            use_endpoint(patch, server.url)
            (server.folder / "soups" / "file").write_bytes(os.urandom(RECEIVED_BYTES))
            source, buffer = open_source(place("s3://soups/file")), aligned_buffer(REMOTE_BLOCK_BYTES)
            received = rate(
                lambda i: [source.read(buffer, offset=start, nbytes=len(buffer)) for start in ranges], RECEIVED_BYTES
            )
        rates = {
            "machine": _processor(),
            "receive_core_seconds_per_gb": received,
            "blend_core_seconds_per_gb": rate(
                lambda i: make_soup(plan, folder / f"out{i}", options=one), plan.read_bytes
            ),
            "gram_core_seconds_per_gb": rate(lambda i: gram(every, options=one), sum(c.nbytes for c in every.values())),
        }
    RATES.write_text(json.dumps(rates, indent=2) + "\n")


def _write(folder: Path, megabytes: int, *, seed: int) -> Path:
    """A checkpoint of one bf16 tensor with numbers near 1, each with its own noise."""
    import numpy as np

    items = megabytes * 500_000
    bits = np.random.default_rng(seed).integers(0x3F00, 0x3FFF, items, dtype=np.uint16)
    header = json.dumps({"w": {"dtype": "BF16", "shape": [items], "data_offsets": [0, 2 * items]}}).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes())
    return folder


def _processor() -> str:
    """Its name, as the system gives it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    load = os.getloadavg()[0]
    return f"{names[0] if names else platform.processor()}, {date.today().isoformat()}, load {load:.1f}"


def _time(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 3 * HOUR else f"{seconds / HOUR:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure the kernels first")
    parser.add_argument("--megabytes", type=int, default=8, help="of each of 120 checkpoints, when measuring")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.megabytes)
    if chosen.write:
        PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(tables(), end="")


if __name__ == "__main__":
    main()
