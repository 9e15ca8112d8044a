"""A bounded number of open files, whatever the number of files that a pass reads or writes.

Eight checkpoints of 163 shards are 1,304 files, and many systems let a process open 1,024. A pass walks through its
shards in order, so few are in use at any time: the one that was used longest ago is closed first, one in use never.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable

MOST = 4096


def most_open(share: float) -> int:
    """How many files a pass may hold open: a share of what the process may."""
    try:
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):
        allowed = 256
    return max(int(share * (MOST if allowed < 0 else min(allowed, MOST))), 4)


class OpenFiles:
    """Descriptors by key. May be used from many threads."""

    def __init__(self, *, share: float, parting: Callable[[int], None] = lambda fd: None) -> None:
        """`parting` is done to a descriptor that is closed to make room."""
        self._most, self._parting = most_open(share), parting
        self._open: dict[Hashable, list[int]] = {}  # descriptor and users; the one used longest ago first
        self._lock = threading.Lock()

    def take(self, key: Hashable, open_file: Callable[[], int]) -> int:
        """The descriptor of that key, which stays open until it is given back."""
        with self._lock:
            held = self._open.pop(key, None)
            if held is None:
                self._make_room()
                held = [open_file(), 0]
            self._open[key] = held
            held[1] += 1
            return held[0]

    def give(self, key: Hashable) -> None:
        """The descriptor is not used by this thread any more."""
        with self._lock:
            self._open[key][1] -= 1

    def close(self, *keys: Hashable) -> None:
        """Close these, or all."""
        with self._lock:
            for key in keys or list(self._open):
                if key in self._open:
                    os.close(self._open.pop(key)[0])

    def _make_room(self) -> None:
        if (over := len(self._open) + 1 - self._most) <= 0:
            return
        for key in [key for key, (_, users) in self._open.items() if not users][:over]:
            fd, _ = self._open.pop(key)
            try:
                self._parting(fd)
            finally:
                os.close(fd)
