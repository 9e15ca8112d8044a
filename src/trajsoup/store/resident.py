"""Whole files kept in memory, so that many passes over a pool of small checkpoints read the disk once.

A file that would not fit below the limit is read from disk by every pass, as without this. One that changed on disk is
read again.
"""

from __future__ import annotations

import threading
from pathlib import Path

from trajsoup.store.regular import read_small
from trajsoup.store.remote import Place


class ResidentFiles:
    """Bytes of files by path. `get` may be called from many threads."""

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._files: dict[str, tuple[tuple[int, int, int], bytes]] = {}
        self._lock = threading.Lock()

    def get(self, path: Place) -> bytes | None:
        """The bytes of a local file; None where it is an object of a store or does not fit."""
        if not isinstance(path, Path):
            return None
        stat = path.stat()
        state, name = (stat.st_size, stat.st_mtime_ns, stat.st_ino), str(path.absolute())
        with self._lock:
            known = self._files.get(name)
            if known is not None and known[0] == state:
                return known[1]
            if known is not None:
                self.held_bytes -= len(self._files.pop(name)[1])
            if self.held_bytes + stat.st_size > self.limit_bytes:
                return None
            found = self.load(path)
            self._files[name] = (state, found)
            self.held_bytes += len(found)
            return found

    def load(self, path: Path) -> bytes:
        """Read a file: the only read of it, as long as it stays as it is."""
        return read_small(path, limit=self.limit_bytes)
