"""The data order: a pure function of (corpus, seed, tokens consumed).

    token set -> windows of one sequence each -> a seeded permutation for every epoch -> sequence number i

Sequence i is the same whatever the batch size, however often a branch was killed, and needs no memory: the permutation
is a keyed Feistel network walked until it lands among the windows, so any position can be asked for on its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.errors import TrainError

ROUNDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """The sequences of one branch. Tokens after the last whole window are never seen."""

    tokens: NDArray[np.uint16 | np.uint32]
    digest: str  # of the corpus
    seed: int
    sequence_length: int

    def __post_init__(self) -> None:
        if self.windows < 1:
            raise TrainError(
                f"the training set has {len(self.tokens):,} tokens, fewer than one sequence of {self.sequence_length:,}: "
                "add documents, or shorten sequence_length"
            )

    @property
    def windows(self) -> int:
        """Sequences in one epoch."""
        return len(self.tokens) // self.sequence_length

    def epochs(self, horizon: int) -> float:
        """How often the training set is read by `horizon`."""
        return horizon / (self.windows * self.sequence_length)

    def batch(self, first: int, count: int) -> NDArray[np.int64]:
        """Return sequences first .. first + count - 1, counted since the fork point, as rows."""
        numbers = np.arange(first, first + count)
        starts = np.empty(count, np.int64)
        for epoch in np.unique(numbers // self.windows):
            inside = numbers // self.windows == epoch
            key = f"{self.digest}:{self.seed}:{epoch}".encode()
            starts[inside] = permuted(numbers[inside] % self.windows, size=self.windows, key=key)
        starts *= self.sequence_length
        return np.stack([self.tokens[s : s + self.sequence_length] for s in starts]).astype(np.int64)


def permuted(positions: NDArray[np.int64], *, size: int, key: bytes) -> NDArray[np.int64]:
    """Return where a keyed permutation of range(size) sends these positions."""
    half_bits = np.uint64(max((size - 1).bit_length() + 1, 2) // 2)
    mask = np.uint64((1 << int(half_bits)) - 1)
    digest = hashlib.blake2b(key, digest_size=8 * ROUNDS).digest()
    keys = np.frombuffer(digest, "<u8").astype(np.uint64)
    image = positions.astype(np.uint64)
    outside = np.ones(len(image), bool)
    while outside.any():  # the network permutes a power of four of at most four times `size`: few walks are long
        left, right = image[outside] >> half_bits, image[outside] & mask
        for round_key in keys:
            left, right = right, left ^ (_mixed(right + round_key) & mask)
        image[outside] = (left << half_bits) | right
        outside = image >= np.uint64(size)
    return image.astype(np.int64)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
