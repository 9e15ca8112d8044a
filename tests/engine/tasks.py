"""Tasks for executors: they fail on purpose, and leave marks so that a second attempt can tell."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

from trajsoup.engine.shards import run_shard
from trajsoup.errors import CheckpointError


def double(number):
    return 2 * number


def first_time(mark):
    """Whether this is the first attempt."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def sleep_for(seconds):
    time.sleep(seconds)
    return seconds


def process_that_meets_another(folder):
    """Stay until another process has come, or for a minute; return the process."""
    (Path(folder) / str(os.getpid())).touch()
    until = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    return os.getpid()


def die_once(item):
    number, mark = item
    if mark and first_time(mark):
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def hang_once(item):
    number, mark = item
    if mark and first_time(mark):
        time.sleep(600)
    return number


def run_out_of_memory_once(item):
    number, mark = item
    if mark and first_time(mark):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 24), before[1]))
        try:
            bytearray(1 << 28)  # the kernel refuses
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
    return number


def raise_ours(number):
    raise CheckpointError(f"checkpoint {number} is damaged: copy it again")


def always_fail(number):
    raise OSError(28, "No space left on device")


def sleepy(number):
    time.sleep(0.2)
    return number


def timed_shard(task):
    """Seconds that a shard task itself takes, from the start of reading to the end of writing."""
    start = time.perf_counter()
    run_shard(task)
    return time.perf_counter() - start
