"""Digests that were computed before: a file that nobody has touched is not hashed again.

A digest is believed as long as size, times of change and inode are what they were, or the version of an object in a store.
A file that changed a moment ago may change once more within the same tick of the clock, so nothing is learnt of it yet.
Merges and studies share the memory in the user's cache folder; a study keeps that of its checkpoints beside its scores.
`verify` asks none of this.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

from trajsoup.errors import OutputError
from trajsoup.store.digest import Algorithm, digest_file
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic
from trajsoup.store.remote import Place, RemotePath
from trajsoup.store.resident import ResidentFiles
from trajsoup.store.unchanged import State, state_of

FILE = "digests.json"  # in the user's cache folder
SETTLED_SECONDS = 5.0  # a file that is younger may still change without a trace
MOST = 50_000  # files that are remembered, the newest


class KnownDigests:
    """What one file remembers. Of files that are `resident`, what memory holds is hashed."""

    def __init__(self, path: Path, *, resident: ResidentFiles | None = None) -> None:
        self.path, self._resident = path, resident
        self._known: dict[str, tuple[State, str]] = {}
        self._changed = False
        with contextlib.suppress(OutputError):  # a memory and nothing more
            if path.is_file():
                self._known = read_json(path, dict[str, tuple[State, str]], cure="remove it", error=OutputError)

    def file(self, file: Place, algorithm: Algorithm) -> str:
        """The digest of one file: known, or computed now and learnt."""
        now = RemotePath(file.url) if isinstance(file, RemotePath) else file  # not what was asked of it before
        if (known := self.of([now], algorithm)) is not None:
            return known[0]
        state = state_of(now)
        held = None if self._resident is None else self._resident.get(file)
        digest = digest_file(now, algorithm) if held is None else algorithm.new(held).hexdigest()
        self.learn([now], [state], [digest], algorithm)
        return digest

    def of(self, files: Sequence[Place], algorithm: Algorithm) -> tuple[str, ...] | None:
        """The digests of all these files; None where one of them is not known as it is now."""
        found = [self._known.get(_name(file, algorithm)) for file in files]
        if any(known is None or known[0] != state_of(file) for known, file in zip(found, files, strict=True)):
            return None
        return tuple(known[1] for known in found if known is not None)

    def learn(
        self, files: Sequence[Place], states: Sequence[State], digests: Sequence[str], algorithm: Algorithm
    ) -> None:
        """Remember the digests of files that were in these states while they were read."""
        now = time.time()
        for file, state, digest in zip(files, states, digests, strict=True):
            name, entry = _name(file, algorithm), (tuple(state), digest)
            if self._known.get(name) != entry and _settled(file, state, now):
                self._known.pop(name, None)
                self._known[name] = entry
                self._changed = True

    def save(self) -> None:
        """Write down what was learnt. A cache folder that cannot be written is no reason to fail."""
        if self._changed:
            with contextlib.suppress(OSError, OutputError):
                newest = dict(list(self._known.items())[-MOST:])
                write_atomic(self.path, json.dumps(newest, indent=0) + "\n")
            self._changed = False


def _settled(file: Place, state: State, now: float) -> bool:
    """Whether another content would have another state."""
    if isinstance(file, RemotePath):
        return bool(state[1])  # the store's own version
    return now - max(int(time_ns) for time_ns in state[1:3]) / 1e9 >= SETTLED_SECONDS


def _name(file: Place, algorithm: Algorithm) -> str:
    return f"{algorithm} {file if isinstance(file, RemotePath) else file.resolve()}"
