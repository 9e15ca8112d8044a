"""Tasks for executors: they fail on purpose, and leave marks so that a second attempt can tell."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

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
        raise MemoryError("no room")
    return number


def raise_ours(number):
    raise CheckpointError(f"checkpoint {number} is damaged: copy it again")


def always_fail(number):
    raise OSError(28, "No space left on device")


def sleepy(number):
    time.sleep(0.2)
    return number
