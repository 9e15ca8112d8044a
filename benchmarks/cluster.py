"""Figures beyond one machine: Ray against threads, tasks in number, a loopback object store, a killed node.

    python benchmarks/cluster.py [--megabytes 64] [--s3-megabytes 256] [--checkpoints 4] [--only ray,tasks,s3,node]

Prints one line for each figure of docs/scale.md, with the load of the machine beside it: all of them are ratios of two
runs made one after the other, and a busy machine blurs them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.checkpoints import write_checkpoint
from tests.engine import tasks
from tests.object_store import s3_server, use_endpoint
from tests.ray_cluster import cluster_for_tests, ray_for_tests
from tests.silence import silenced

from trajsoup.engine.executor import LocalExecutor
from trajsoup.engine.shards import STRETCH_BYTES, shard_tasks
from trajsoup.engine.workers import Options
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import explicit_row, plan_row

SHARDS = 4
ROUNDS = 7  # of two things side by side; the median of their ratios counts
TASKS = 1000
SHARD_MEGABYTES = (8, 32)  # of each ingredient: about 30 and 120 ms of work; shards of real models take seconds


def write_run(folder: Path, *, count: int, megabytes: int) -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 2**15, megabytes * 500_000 // SHARDS, dtype=np.uint16).astype(np.int16)
    for i in range(count):
        bits = (base & 0x3BFF) ^ i
        import torch

        part = torch.from_numpy(bits).view(torch.bfloat16)
        write_checkpoint(folder / f"c{i}", {f"t{j}": part.clone() for j in range(SHARDS)}, shards=SHARDS, config={})


def plan_at(where: object, count: int):
    return plan_row(explicit_row([(f"{where}/c{i}", 1 / count) for i in range(count)]))


def timed(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def spent(action, server: int) -> tuple[float, float, float]:
    """Seconds of an action by the clock, of this process's processor time, and of the server's."""
    before = processor_seconds(os.getpid()), processor_seconds(server)
    seconds = timed(action)
    return seconds, processor_seconds(os.getpid()) - before[0], processor_seconds(server) - before[1]


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ray_over_threads(folder: Path, count: int) -> None:
    plan = plan_at(folder / "run", count)
    one = Options(workers=1, direct=False)
    with ray_for_tests(workers=2) as executor:
        make_soup(plan, folder / "warm", executor=executor, options=one)  # starts workers, compiles kernels
        make_soup(plan, folder / "warm-local", options=Options(workers=2, direct=False))
        pairs = []
        for i in range(3):
            local = timed(lambda i=i: make_soup(plan, folder / f"l{i}", options=Options(workers=2, direct=False)))
            pairs.append((local, timed(lambda i=i: make_soup(plan, folder / f"r{i}", executor=executor, options=one))))
    local, ray = (float(np.median(column)) for column in zip(*pairs, strict=True))
    rate = plan.read_bytes / 1e9
    say(
        "blend, Ray 2 workers / 2 threads",
        f"{local / ray:.2f}",
        f"target 0.8; {rate / ray:.2f} and {rate / local:.2f} GB/s of input",
    )


def task_overhead(folder: Path, megabytes: int) -> None:
    """1,000 real shard tasks: their own time, measured inside each, against the time that two workers needed for all."""
    write_run(folder / "overhead", count=4, megabytes=megabytes * SHARDS)
    plan = plan_at(folder / "overhead", 4)
    (folder / "shards").mkdir()
    arguments = {"exact_from": None, "digest": None, "stretch_bytes": STRETCH_BYTES}
    once = shard_tasks(
        dict(sorted(plan.checkpoints.items())),
        plan.row,
        folder / "shards",
        layout=plan.layout,
        options=Options(workers=1, direct=False),
        **arguments,
    )
    items = [once[i % len(once)] for i in range(TASKS)]
    for name, opened in (("this machine", LocalExecutor(2)), ("Ray", ray_for_tests(workers=2))):
        with opened as executor:
            executor.map(tasks.timed_shard, items[:8])  # starts workers, loads kernels
            start = time.perf_counter()
            inside = executor.map(tasks.timed_shard, items)
            outside = time.perf_counter() - start
            empty = timed(lambda e=executor: e.map(tasks.double, range(TASKS)))
        work = sum(inside) / 2
        say(
            f"overhead of {TASKS:,} tasks, {megabytes} MB shards, {name}",
            f"{outside / work - 1:.1%}",
            f"target 5 %; {1000 * work * 2 / TASKS:.0f} ms of work each; empty ones {1000 * empty / TASKS:.2f} ms each",
        )


def store_over_get(folder: Path, count: int, patch: pytest.MonkeyPatch) -> None:
    """From S3 to a local folder, against botocore's sequential GET of the same objects, which keeps nothing.

    Counted for the merge: range reads, blend, writing and syncing the soup. Not counted for either: opening the
    ingredients (headers), hashing.
    """
    with s3_server(folder / "s3") as server:
        (folder / "run").rename(server.folder / "soups" / "run")
        use_endpoint(patch, server.url)
        import botocore.session

        client = botocore.session.get_session().create_client("s3", endpoint_url=server.url)
        plan = plan_at("s3://soups/run", count)
        keys = [str(f).removeprefix("s3://soups/") for c in plan.checkpoints.values() for f in c.files]

        def get() -> None:
            read = 0
            for key in keys:
                body = client.get_object(Bucket="soups", Key=key)["Body"]
                for chunk in body.iter_chunks(1 << 20):
                    read += len(chunk)
            assert read == plan.read_bytes

        get()
        make_soup(plan, folder / "first", digest=None)  # loads the kernels
        pairs = []
        for i in range(ROUNDS):
            plain = spent(get, server.pid)
            pairs.append((plain, spent(lambda i=i: make_soup(plan, folder / f"soup-{i}", digest=None), server.pid)))
        ratio = float(np.median([plain[0] / merge[0] for plain, merge in pairs]))
        plain, merge = (np.median(np.array(column), axis=0) for column in zip(*pairs, strict=True))
        size = plan.read_bytes / 1e9
        say(
            "range-read merge / sequential GET",
            f"{ratio:.2f}",
            f"{size / merge[0]:.2f} and {size / plain[0]:.2f} GB/s; target 0.7; CPU seconds per GB: "
            f"client {merge[1] / size:.2f} and {plain[1] / size:.2f}, server {merge[2] / size:.2f} and "
            f"{plain[2] / size:.2f}",
        )


def node_recovery() -> None:
    killed: list[float] = []
    with silenced(), cluster_for_tests() as (executor, cluster, nodes):
        executor.map(tasks.double, range(4))

        def kill(number: int, result: object) -> None:
            if not killed:
                cluster.remove_node(nodes[0], allow_graceful=False)
                killed.append(time.perf_counter())

        start = time.perf_counter()
        executor.map(tasks.sleepy, range(10), progress=kill)
        end = time.perf_counter()
    work = 9 * 0.2  # what one node has left to do
    say("recovery from a killed node", f"{end - killed[0] - work:.1f} s", f"target 30 s; {end - start:.1f} s in all")


def say(what: str, figure: str, detail: str) -> None:
    print(f"{what:40s} {figure:>10s}   {detail}   (load {os.getloadavg()[0]:.1f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=64, help="of each checkpoint")
    parser.add_argument("--s3-megabytes", type=int, default=256, help="of each checkpoint in the object store")
    parser.add_argument("--checkpoints", type=int, default=4)
    parser.add_argument("--only", default="ray,tasks,s3,node")
    chosen = parser.parse_args()
    only = chosen.only.split(",")
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "tasks" in only:
            for megabytes in SHARD_MEGABYTES:
                (folder / str(megabytes)).mkdir()
                task_overhead(folder / str(megabytes), megabytes)
        if "ray" in only:
            write_run(folder / "run", count=chosen.checkpoints, megabytes=chosen.megabytes)
            ray_over_threads(folder, chosen.checkpoints)
            shutil.rmtree(folder / "run")
        if "s3" in only:
            write_run(folder / "run", count=chosen.checkpoints, megabytes=chosen.s3_megabytes)
            store_over_get(folder, chosen.checkpoints, patch)
        if "node" in only:
            node_recovery()
    patch.undo()


if __name__ == "__main__":
    main()
