"""What a model is, by content: the hash of a checkpoint's bytes, or of a row's weights and its ingredients' hashes.

A row with one ingredient of weight 1 is that checkpoint, and has its identity. Hashing a checkpoint reads it once; the
result is remembered beside the scores, under the file's size, inode and time of change, so an untouched file is never
hashed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from trajsoup.core.soup import Row
from trajsoup.errors import OutputError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.digest import sha256_file
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic
from trajsoup.store.remote import Place, RemotePath
from trajsoup.store.resident import ResidentFiles

FORMAT = 1
Hashed = tuple[int, int | str, int | None, str]  # size, time of change or version, inode; sha256

IDENTITIES = "scores/identities.json"  # content hashes of the checkpoints, in the folder of a study


class FileHashes:
    """sha256 of files, remembered in one file."""

    def __init__(self, path: Path, *, resident: ResidentFiles | None = None) -> None:
        self.path, self._resident = path, resident
        self._known: dict[str, Hashed] = {}
        self._changed = False
        with contextlib.suppress(OutputError):  # a memory of hashes, nothing more: they are computed again
            if path.is_file():
                self._known = read_json(path, dict[str, Hashed], cure="remove it", error=OutputError)

    def save(self) -> None:
        """Keep what was hashed, if anything was."""
        if self._changed:
            write_atomic(self.path, json.dumps(self._known, indent=0, sort_keys=True) + "\n")
            self._changed = False

    def file(self, file: Place) -> str:
        """The hash of one file."""
        if isinstance(file, RemotePath):
            state: tuple[int, int | str, int | None] = (file.stat().st_size, file.version, None)
        else:
            stat = file.stat()
            state = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        name = str(file.resolve())
        known = self._known.get(name)
        if known is None or known[:3] != state:
            held = None if self._resident is None else self._resident.get(file)
            digest = sha256_file(file) if held is None else hashlib.sha256(held).hexdigest()
            known = self._known[name] = (state[0], state[1], state[2], digest)
            self._changed = True
        return known[3]


class Identities(FileHashes):
    """Content hashes of checkpoints and rows."""

    def checkpoint(self, checkpoint: Checkpoint) -> str:
        """sha256 over the names and hashes of the weight files and over the config."""
        digest = hashlib.sha256()
        for file in checkpoint.files:
            digest.update(f"{file.name} {self.file(file)}\n".encode())
        digest.update(json.dumps(dict(checkpoint.config), sort_keys=True).encode())
        return digest.hexdigest()

    def row(self, row: Row, checkpoints: dict[str, str]) -> str:
        """The identity of a row, given those of its ingredients by key."""
        members, *of_groups = (
            sorted((checkpoints[key], float(weight).hex()) for key, weight in weights.items())
            for weights in (row.weights, *(row.groups or {}).values())
        )
        if len(members) == 1 and members[0][1] == (1.0).hex():
            return members[0][0]
        own = [sorted(zip(row.groups, of_groups, strict=True))] if row.groups else []
        return hashlib.sha256(json.dumps(["row", FORMAT, members, *own]).encode()).hexdigest()
