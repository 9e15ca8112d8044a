"""Digests of files: alone, or of blocks that several threads read at once.

Ingredients are many and large, so they are known by BLAKE3, which is the faster; what a merge writes has the SHA-256 that
hubs show. Either can be checked with a tool that systems have: `b3sum`, `sha256sum`.
"""

from __future__ import annotations

import hashlib
import threading
from enum import StrEnum
from typing import Any

from trajsoup.store.regular import opened
from trajsoup.store.remote import Place
from trajsoup.store.source import reading
from trajsoup.store.unchanged import State, require_unchanged, state_of


class Algorithm(StrEnum):
    """How a file is hashed."""

    BLAKE3 = "blake3"
    SHA256 = "sha256"

    def new(self, start: bytes = b"") -> Any:
        """A hash that has seen `start`."""
        if self is Algorithm.SHA256:
            return hashlib.sha256(start)
        from blake3 import blake3

        return blake3(start)


def digest_file(path: Place, algorithm: Algorithm) -> str:
    """Hash one file."""
    before = _state(path)
    with reading(path), opened(path) as file:
        digest = hashlib.file_digest(file, algorithm.new).hexdigest()
    require_unchanged([path], [before])
    return digest


def sha256_file(path: Place) -> str:
    """The SHA-256 of one file."""
    return digest_file(path, Algorithm.SHA256)


def _state(path: Place) -> State:
    with reading(path):
        return state_of(path)


class OrderedDigest:
    """The digest of a file whose blocks arrive from several threads, nearly in order.

    A block that comes early waits for its turn. Workers take blocks in order and visit files in the same order, so
    the waits form a wave front, not a cycle.
    """

    def __init__(self, algorithm: Algorithm, *, start: bytes = b"") -> None:
        self._hash = algorithm.new(start)
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
