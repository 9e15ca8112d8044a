"""A study under random faults: python benchmarks/soak.py [--minutes 3] [--seed 0]

A tiny study runs on a Ray cluster of two nodes on loopback while workers, nodes and the command itself are killed or
interrupted, and its disk fills up; then its soup is made once more from an object store that answers 500. What comes out
must equal, byte by byte, what an undisturbed run makes. Studies are repeated until the time is over; the last one is
then left in peace to finish. Prints figures, and ends with 1 if a byte differs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cluster import study_command as command
from tests.faulty_proxy import faulty_proxy
from tests.object_store import find_rclone, s3_server, use_endpoint
from tests.ray_cluster import NODE, loopback_cluster
from tests.silence import silenced
from tests.store_digests import digests
from tests.study.tiny_study import make_fork_point

from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import explicit_row, plan_row

DISK_MEGABYTES = 64
PEACE_SECONDS = 900  # for the last study to finish, and for any one to be undisturbed
EVERY_SECONDS = (2.0, 8.0)  # between two faults


class Soak:
    """One cluster, one study at a time, and the dice."""

    def __init__(self, folder: Path, cluster, nodes: list, *, seed: int) -> None:
        self.folder, self.cluster, self.nodes = folder, cluster, nodes
        self.chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.restarts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = command.start(self.folder, "--engine", "ray", "--address", self.cluster.address)

    def study(self, *, until: float) -> float:
        """Run the study to its end, with faults before `until`; return the seconds it took."""
        began = time.monotonic()
        due = began + self.chance.uniform(*EVERY_SECONDS)
        self.start()
        while True:
            assert self.process is not None
            code = self.process.poll()
            if code == 0:
                return time.monotonic() - began
            now = time.monotonic()
            if now > max(until, began) + PEACE_SECONDS:
                raise SystemExit(f"not finished after {PEACE_SECONDS} s in peace: {command.said(self.folder)[-2000:]}")
            if code is not None:
                self.restarts += 1
                self.start()
            elif now < until and now >= due:
                name = self.chance.choice(sorted(FAULTS))
                if FAULTS[name](self):
                    self.faults[name] += 1
                due = time.monotonic() + self.chance.uniform(*EVERY_SECONDS)
            time.sleep(0.1)

    def kill_worker(self) -> bool:
        pids = command.branch_pids(self.folder) + [
            pid for node in self.nodes for pid in _children(node.all_processes["raylet"][0].process.pid)
        ]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(sorted(pids)), signal.SIGKILL)
        return bool(pids)

    def kill_node(self) -> bool:
        node = self.nodes.pop(self.chance.randrange(len(self.nodes)))
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.append(self.cluster.add_node(num_cpus=1, **NODE))
        return True

    def kill_command(self) -> bool:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return True

    def interrupt_command(self) -> bool:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)
        return True

    def fill_disk(self) -> bool:
        """Leave no room for some seconds, if the study has a disk of its own."""
        if not os.path.ismount(self.folder.parent):
            return False
        filler = self.folder.parent / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        time.sleep(self.chance.uniform(1, 3))
        filler.unlink()
        return True


FAULTS = {
    "worker killed": Soak.kill_worker,
    "node killed": Soak.kill_node,
    "command killed": Soak.kill_command,
    "command interrupted": Soak.interrupt_command,
    "disk full": Soak.fill_disk,
}


def _children(parent: int) -> list[int]:
    """Python workers of a raylet."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[1]) == parent and b"ray::" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


@contextlib.contextmanager
def disk(folder: Path):
    """A small disk of its own where one may be mounted; else the folder itself."""
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def soup_from_store(study: Path, folder: Path) -> tuple[bool, int]:
    """Blend two checkpoints over a store where every request fails once: are the bytes right, and how often it failed."""
    if find_rclone() is None:
        return True, 0
    patch = pytest.MonkeyPatch()
    found = sorted(study.glob("branches/EXP1/checkpoint-*"))[:2]
    make_soup(plan_row(explicit_row([(str(path), 0.5) for path in found])), folder / "local")
    with s3_server(folder / "s3") as server:
        bucket = server.folder / "soups"
        for path in found:
            subprocess.run(["cp", "-r", str(path), str(bucket / path.name)], check=True)
        with faulty_proxy((server.host, server.port)) as proxy:
            proxy.share = 1.0  # every request stumbles once
            use_endpoint(patch, proxy.url)
            make_soup(plan_row(explicit_row([(f"s3://soups/{path.name}", 0.5) for path in found])), folder / "remote")
            faults = sum(proxy.faults.values())
    patch.undo()
    weights = [
        {n: d for n, d in digests(folder / w).items() if n.endswith(".safetensors")} for w in ("local", "remote")
    ]
    return list(weights[0].values()) == list(weights[1].values()), faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    faults: Counter[str] = Counter()
    restarts = rounds = 0
    lost, same = 0.0, True
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        fork_point = make_fork_point(base / "fork")
        quiet = command.prepared(base / "quiet" / "study", fork_point)
        began = time.monotonic()
        command.finish(command.start(quiet), quiet, seconds=PEACE_SECONDS)
        alone = time.monotonic() - began
        print(f"undisturbed, on this machine without Ray: {alone:.0f} s", flush=True)
        expected = command.results(quiet)
        with silenced(), loopback_cluster() as (cluster, nodes):
            until = time.monotonic() + 60 * chosen.minutes
            while rounds == 0 or time.monotonic() < until:
                with disk(base / f"round-{rounds}"):
                    study = command.prepared(base / f"round-{rounds}" / "study", fork_point)
                    soak = Soak(study, cluster, nodes, seed=chosen.seed + rounds)
                    try:
                        lost += soak.study(until=until) - alone
                    finally:
                        if soak.process is not None:
                            command.end(soak.process)
                    same = same and command.results(study) == expected
                    faults += soak.faults
                    restarts += soak.restarts
                rounds += 1
        whole, failures = soup_from_store(quiet, base / "store")
    faults["requests of the store"] = failures
    print(f"seed                     {chosen.seed}")
    print(f"studies                  {rounds}")
    for kind, count in sorted(faults.items()):
        print(f"{kind:24s} {count}")
    print(f"faults in all            {sum(faults.values())}")
    print(f"commands started again   {restarts}")
    print(f"time lost                {lost:.0f} s beyond {rounds} x {alone:.0f} s")
    print(f"byte-identical           {'yes' if same and whole else 'NO'}", flush=True)
    sys.exit(0 if same and whole else 1)


if __name__ == "__main__":
    main()
