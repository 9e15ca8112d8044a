"""Four sets that never share a document: which one a document belongs to is read off its own hash.

    document -> sha256 -> a number in [0, 1) -> pretrain | train | validation | test

The answer depends on the document alone, so adding or removing others moves nothing across a border.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from enum import StrEnum

from trajsoup.errors import CorpusError


class Split(StrEnum):
    """What a document may be used for."""

    PRETRAIN = "pretrain"  # makes the fork point
    TRAIN = "train"  # mid-training: the distribution P that all branches share
    VALIDATION = "validation"  # ranks checkpoints; chooses N, K and strategy
    TEST = "test"  # reported, never used to choose


def document_hash(content: str | bytes) -> str:
    """The name of a document: sha256 of its bytes."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content).hexdigest()


def split_of(digest: str, *, shares: Mapping[Split, float]) -> Split:
    """Place a document by its hash; `shares` say how much of all documents each set gets, and sum to one."""
    position = int(digest[:16], 16) / 2**64
    bound = 0.0
    chosen: Split | None = None
    for split in Split:
        if shares.get(split, 0.0) > 0:
            bound += shares[split]
            chosen = split
            if position < bound:
                return split
    assert chosen is not None  # require_shares refuses an empty mapping
    return chosen  # rounding left a sliver above the last bound


def require_shares(shares: Mapping[Split, float]) -> None:
    """Refuse shares that do not describe a partition."""
    total = math.fsum(shares.values())
    if any(not 0 <= share <= 1 for share in shares.values()) or abs(total - 1) > 1e-9:
        listed = ", ".join(f"{split.value} {share:g}" for split, share in shares.items())
        raise CorpusError(
            f"the shares of the splits are {listed} and sum to {total:g}: use shares in [0, 1] that sum to 1"
        )
