"""sha256 of files: alone, or of blocks that several threads read at once."""

from __future__ import annotations

import hashlib
import threading

from trajsoup.store.regular import opened
from trajsoup.store.remote import Place
from trajsoup.store.source import reading
from trajsoup.store.unchanged import State, require_unchanged, state_of


def sha256_file(path: Place) -> str:
    """Hash one file."""
    before = _state(path)
    with reading(path), opened(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    require_unchanged([path], [before])
    return digest


def _state(path: Place) -> State:
    with reading(path):
        return state_of(path)


class OrderedDigest:
    """sha256 of a file whose blocks arrive from several threads, nearly in order.

    A block that comes early waits for its turn. Workers take blocks in order and visit files in the same order, so
    the waits form a wave front, not a cycle.
    """

    def __init__(self, *, start: bytes = b"") -> None:
        self._hash = hashlib.sha256(start)
        self._position = len(start)
        self._turn = threading.Condition()
        self._cancelled = False

    def update(self, offset: int, block: memoryview) -> None:
        """Add the block at `offset`, after all bytes before it."""
        with self._turn:
            self._turn.wait_for(lambda: self._position == offset or self._cancelled)
            if self._cancelled:
                return
        self._hash.update(block)  # outside the lock: it releases the GIL, and only one block can have this turn
        with self._turn:
            self._position += len(block)
            self._turn.notify_all()

    def cancel(self) -> None:
        """Let every waiting thread go; the digest is void."""
        with self._turn:
            self._cancelled = True
            self._turn.notify_all()

    def hexdigest(self) -> str:
        """The digest of everything added."""
        return self._hash.hexdigest()


def sample_digest(path: Place, *, samples: int = 8, sample_bytes: int = 4096) -> str:
    """Hash the size and a few samples of a file: different digests prove different files, in no time."""
    with reading(path), opened(path) as file:
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        for i in range(samples):
            file.seek(max(size - sample_bytes, 0) * i // max(samples - 1, 1))
            digest.update(file.read(sample_bytes))
    return digest.hexdigest()
