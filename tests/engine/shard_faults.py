"""Shard tasks that meet a fault on their first attempt at one file, and are then as they should be."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path

from tests.engine.tasks import first_time
from trajsoup.engine import shards

CHOSEN = "00002"  # part of the name of the file at which it happens


def strikes(task):
    """Whether this is the first attempt at the chosen file."""
    return CHOSEN in task.layout.files[0].name and first_time(Path(str(task.folder)).parent / "struck")


@contextlib.contextmanager
def limited(kind, limit):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def killed(task):
    """Die half-way."""
    if strikes(task):
        (task.folder / f".{task.layout.files[0].name}.half").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return shards.run_shard(task)


def hung(task):
    """Never come back."""
    if strikes(task):
        time.sleep(3600)
    return shards.run_shard(task)


def out_of_memory(task):
    """A machine with less memory than the task needs: the kernel refuses, for real."""
    if not strikes(task):
        return shards.run_shard(task)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with limited(resource.RLIMIT_AS, used + (1 << 20)):
        result = shards.run_shard(task)
        bytearray(1 << 28)  # what it needs may have been there from before; this is not
        return result


def disk_full(task):
    """A machine that can write a few bytes, and then no more."""
    if not strikes(task):
        return shards.run_shard(task)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
    with limited(resource.RLIMIT_FSIZE, 4096):
        return shards.run_shard(task)


def killed_in_store(task):
    """Die before the upload of the chosen file; the mark lies where the environment says, since a store has none."""
    if CHOSEN in task.layout.files[0].name and first_time(os.environ["SHARD_FAULT_MARK"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return shards.run_shard(task)
