"""Measure `trajsoup watch` beside a growing run: how late it tells of a new checkpoint, and what it holds in the end.

    python benchmarks/watch.py [--checkpoints N] [--probes N] [--every SECONDS] [--root DIR]

A process of its own writes checkpoint-N folders as a Trainer does: each trainer_state.json, which comes last, repeats the
log. At some lengths of the run it waits until it is caught up with, then writes single checkpoints at odd moments. Late is
how long after its last byte a checkpoint is in what was printed, or in the page as a browser loads it, every two seconds.
Nothing is scored: losses are those of the log. Memory (resident, less what is mapped from files) and open files are read
whenever it is caught up with.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.plain_checkpoints import write_plain

from trajsoup.report.watching import REFRESH_SECONDS

TARGET_SECONDS = 5.0
TARGET_MB = 20.0  # more at the end than after the first tenth
STEPS = 2  # of the Trainer between two checkpoints, each of which it logs
COUNT = re.compile(rb'"checkpoints": (\d+)')  # of --json
ON_PAGE = re.compile(rb"<td[^>]*>\s*run\s*</td>\s*<td[^>]*>\s*([\d,]+)\s*</td>")
PATIENCE = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=2000)
    parser.add_argument("--probes", type=int, default=4, help="single checkpoints at each length")
    parser.add_argument("--every", type=float, default=1.0, help="of watch, in seconds; its default")
    parser.add_argument("--root", type=Path, help="folder for the runs")
    args = parser.parse_args()
    lengths = sorted({max(args.checkpoints // 10, 1), args.checkpoints // 2, args.checkpoints})
    print(f"{args.checkpoints:,} checkpoints, {args.probes} single ones at each length, --every {args.every:g}\n")
    print(
        "| shown | checkpoints | late, median s | late, worst s | resident MB | open files |\n|---|---:|---:|---:|---:|---:|"
    )
    met = True
    for served in (False, True):
        with tempfile.TemporaryDirectory(dir=args.root) as folder:
            found = measured(Path(folder) / "run", lengths, probes=args.probes, every=args.every, served=served)
        for length, late, memory, files in found:
            print(
                f"| {'page' if served else 'printed'} | {length:,} | {statistics.median(late):.2f} | {max(late):.2f} | "
                f"{memory / 1e6:.1f} | {files} |",
                flush=True,
            )
        worst = max(max(late) for _, late, _, _ in found)
        grown = (found[-1][2] - found[0][2]) / 1e6
        opened = found[-1][3] - found[0][3]
        met &= worst <= TARGET_SECONDS and grown <= TARGET_MB and opened <= 0
        print(
            f"| | | | {verdict(worst <= TARGET_SECONDS)} {TARGET_SECONDS:g} | {grown:+.1f}, "
            f"{verdict(grown <= TARGET_MB)} {TARGET_MB:g} | {opened:+d}, {verdict(opened <= 0)} 0 |"
        )
    print(f"\nTargets {'met' if met else 'MISSED'}: {TARGET_SECONDS:g} s, {TARGET_MB:g} MB, no file more.")


def verdict(held: bool) -> str:
    return "within" if held else "ABOVE"


def measured(
    run: Path, lengths: list[int], *, probes: int, every: float, served: bool
) -> list[tuple[int, list[float], int, int]]:
    """At each length of the run: how late single checkpoints were told, memory and open files after them."""
    chance, found = random.Random(0), []
    ask, answer = multiprocessing.Pipe()
    writer = multiprocessing.Process(target=write, args=(run, answer), daemon=True)
    writer.start()
    ask.send(1)
    written = ask.recv()[0]
    port = free_port() if served else None
    with watching(run, every=every, port=port) as (process, shown):
        for length in lengths:
            ask.send(max(length - probes - written, 0))
            written, _ = ask.recv()
            shown.wait(written)
            late = []
            for _ in range(probes):
                time.sleep(chance.uniform(0, max(every, REFRESH_SECONDS)))
                ask.send(1)
                written, done = ask.recv()
                late.append(shown.wait(written) - done)
            found.append((written, late, resident(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))))
    ask.send(None)
    writer.join()
    return found


class Shown:
    """How many checkpoints somebody has been told of, and when."""

    def __init__(self) -> None:
        self._count, self._at = 0, 0.0
        self._news = threading.Condition()

    def tell(self, count: int) -> None:
        with self._news:
            if count > self._count:
                self._count, self._at = count, time.monotonic()
                self._news.notify_all()

    def wait(self, count: int) -> float:
        """When so many were told of."""
        with self._news:
            if not self._news.wait_for(lambda: self._count >= count, timeout=PATIENCE):
                raise SystemExit(f"watch told of {self._count} checkpoints, and after {PATIENCE:g} s not of {count}")
            return self._at


@contextlib.contextmanager
def watching(run: Path, *, every: float, port: int | None) -> Iterator[tuple[subprocess.Popen[bytes], Shown]]:
    shown, over = Shown(), threading.Event()
    serve = [] if port is None else ["--serve", str(port)]
    command = [sys.executable, "-m", "trajsoup", "watch", str(run), "--json", "--every", str(every), *serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        threads = [threading.Thread(target=read, args=(process, shown if port is None else Shown()))]
        if port is not None:
            threads.append(threading.Thread(target=browse, args=(port, shown, over)))
        for thread in threads:
            thread.start()
        try:
            yield process, shown
        finally:
            over.set()
            process.terminate()
            for thread in threads:
                thread.join()


def read(process: subprocess.Popen[bytes], shown: Shown) -> None:
    """What it prints, line by line."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := COUNT.search(line):
            shown.tell(int(match[1]))


def browse(port: int, shown: Shown, over: threading.Event) -> None:
    """The page, as it loads itself."""
    while not over.is_set():
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
            if match := ON_PAGE.search(page.read()):
                shown.tell(int(match[1].replace(b",", b"")))
        over.wait(REFRESH_SECONDS)


def write(run: Path, pipe) -> None:
    """Write as many checkpoints as is asked for; tell how many there are, and when the last was complete."""
    chance, history, number = np.random.default_rng(0), [], 0
    run.mkdir(parents=True)
    while (more := pipe.recv()) is not None:
        for _ in range(more):
            number += 1
            first = (number - 1) * STEPS
            history += [
                {"step": first + i, "loss": 2 + 1 / (first + i), "learning_rate": 1e-4, "epoch": 0.1, "grad_norm": 1.0}
                for i in range(1, STEPS + 1)
            ]
            loss = 2 + 1 / number + 0.01 * chance.standard_normal()
            history.append({"step": number * STEPS, "eval_loss": loss, "epoch": 0.1, "eval_runtime": 1.0})
            folder = write_plain(run / f"checkpoint-{number * STEPS}", files={"config.json": "{}"})
            state = {"global_step": number * STEPS, "num_input_tokens_seen": number * 4096, "log_history": history}
            (folder / "trainer_state.json").write_text(json.dumps(state))
        pipe.send((number, time.monotonic()))


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))) * 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
