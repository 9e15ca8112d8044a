"""What a model is, by content: the hash of a checkpoint's bytes, or of a row's weights and its ingredients' hashes.

A row with one ingredient of weight 1 is that checkpoint, and has its identity. Hashing a checkpoint reads it; the
result is remembered beside the scores (known_digests.py), so a file that is left alone is not hashed again.
"""

from __future__ import annotations

import hashlib
import json

from trajsoup.core.soup import Row
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.digest import Algorithm
from trajsoup.store.known_digests import KnownDigests

FORMAT = 1
IDENTITIES = "scores/identities.json"  # content hashes of the checkpoints, in the folder of a study


class Identities(KnownDigests):
    """Content hashes of checkpoints and rows."""

    def checkpoint(self, checkpoint: Checkpoint) -> str:
        """sha256 over the names and hashes of the weight files and over the config."""
        digest = hashlib.sha256()
        for file in checkpoint.files:
            digest.update(f"{file.name} {self.file(file, Algorithm.SHA256)}\n".encode())
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
