"""One holder at a time, on one machine or on many that share a folder; whoever finds a lock learns whose it is.

    holding(path) -> flock -> the owner's record in the file, counted up every few seconds -> released, record emptied

A kernel frees the lock of a process that dies. Not every shared file system passes locks between machines, so a record
left by another machine is watched: its owner counts, and a count that stands still has no owner. Only the watcher's own
seconds are used: the clocks of two machines are never compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trajsoup.errors import HeldError, StoreError
from trajsoup.store.confined import open_own
from trajsoup.store.json_file import read_json

BEAT_SECONDS = 2.0
WATCH_SECONDS = 12.0  # several beats: a slow file system is not a dead owner
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds a lock."""

    host: str
    boot: str  # of the machine: another one after a restart, and another one on every machine
    processes: str  # the namespace in which `pid` counts: containers have their own
    pid: int
    started: str | None  # ticks from boot to the process's start: tells it from a later one with its number
    beat: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextlib.contextmanager
def holding(path: Path, *, patience_seconds: float = 0.0) -> Iterator[int]:
    """Hold `path` for the time of the block. Held by another, wait that long, then raise HeldError with its owner.

    Yields the open file: a process that inherits it holds the lock until it ends, even if this one is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fd = _take(path)
            break
        except HeldError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_SECONDS)
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(fd, over), daemon=True)
    beating.start()
    try:
        yield fd
    finally:
        over.set()
        beating.join()
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
        os.close(fd)


def owner_of(path: Path) -> Owner | None:
    """The owner that a lock names, alive or not; None: it is free."""
    with contextlib.suppress(StoreError):
        return read_json(path, Owner, cure="remove it", error=StoreError)
    return None


def holder_of(path: Path) -> Owner | None:
    """The owner that a lock names, unless it is known to have ended: for who only looks, and waits for nothing."""
    owner, me = owner_of(path), this_process()
    if owner is not None and (owner.boot, owner.processes) == (me.boot, me.processes):
        return owner if owner.started == started(owner.pid) else None
    return owner


def this_process() -> Owner:
    """The owner that this process would be."""
    return Owner(
        host=socket.gethostname(),
        boot=_read("/proc/sys/kernel/random/boot_id"),
        processes=_namespace(),
        pid=os.getpid(),
        started=started(os.getpid()),
    )


def _take(path: Path) -> int:
    fd = open_own(path, os.O_RDWR)
    try:
        locked = _lock(fd, path)
        before = owner_of(path)
        if before is not None and _alive(before, path, locked=locked):
            raise HeldError(str(before))
        me = this_process()
        _write(fd, me)
        if not locked:  # two that come at once: the last to write has it
            time.sleep(BEAT_SECONDS)
            now = owner_of(path)
            if now is not None and dataclasses.replace(now, beat=0) != me:
                raise HeldError(str(now))
        return fd
    except BaseException:
        os.close(fd)
        raise


def _lock(fd: int, path: Path) -> bool:
    """Whether the file system gave the lock; False: it has none."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise HeldError(str(owner_of(path) or "another process")) from error
    except OSError:
        return False
    return True


def _alive(owner: Owner, path: Path, *, locked: bool) -> bool:
    me = this_process()
    if owner.boot == me.boot:
        if locked:
            return False  # this kernel gave us the lock, so it ended the owner
        if owner.processes == me.processes:
            return owner.started == started(owner.pid)
    time.sleep(WATCH_SECONDS)
    return owner_of(path) != owner


def _beat(fd: int, over: threading.Event) -> None:
    me = this_process()
    while not over.wait(BEAT_SECONDS):
        me = dataclasses.replace(me, beat=me.beat + 1)
        with contextlib.suppress(OSError):
            _write(fd, me)


def _write(fd: int, owner: Owner) -> None:
    text = (json.dumps(dataclasses.asdict(owner)) + "\n").encode()
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return socket.gethostname()  # no Linux: the host must do


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def started(pid: int | str) -> str | None:
    """When a process started, as the kernel says; None: there is none of that number."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19]
    return None
