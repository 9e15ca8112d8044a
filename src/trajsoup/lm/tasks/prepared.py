"""What is scored: items as tokens, whether they were drawn or made of documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.splits import Split
from trajsoup.lm.tasks.forests import Planted, planted
from trajsoup.lm.tasks.items import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTask:
    """A configuration with its items as tokens: one span per option, or one per item for exact match."""

    task: Configuration
    sequences: tuple[tuple[int, ...], ...]
    spans: NDArray[np.int64]  # by span: its sequence, its first token there, the one after its last
    first: NDArray[np.int64]  # by item: its first span; last entry = number of spans
    right: NDArray[np.int64]  # by item: which of its spans is the answer
    document: NDArray[np.int64] | None = None  # by item: the document that it was made of; None: items are drawn apart


@dataclass(frozen=True, kw_only=True)
class PreparedSuite:
    """What is scored again and again: the same items for every model."""

    tasks: tuple[PreparedTask, ...]
    split: Split
    digest: str  # of items, metrics and tokens
    largest_token: int
    longest: int  # tokens of the longest sequence

    @cached_property
    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Of all tasks."""
        return tuple(sequence for task in self.tasks for sequence in task.sequences)

    @cached_property
    def trees(self) -> Planted:
        """The sequences, what they have in common once."""
        return planted(self.sequences)

    @cached_property
    def lines(self) -> Planted:
        """The sequences, each by itself."""
        return planted(self.sequences, shared=False)
