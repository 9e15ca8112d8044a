"""What a model scored, kept small enough to keep for good: one number per document, one per item.

    DocumentLosses (sums per document), TaskResult (per item)  ->  ValidationScores | TestScores

Any weighting, normalisation or comparison is arithmetic on these, so no model is ever run twice for it. Validation and
test are two types on purpose: code that chooses takes `ValidationScores`, and nothing turns the other into it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.signal import Signal
from trajsoup.errors import ScoreError

PIECES = 10  # parts of a probe
FEWEST = 30  # effective documents: what is said of fewer holds too seldom to be said


class Per(StrEnum):
    """What the negative log-likelihood is divided by."""

    TOKEN = "token"  # predicted tokens: the paper's validation loss
    BYTE = "byte"  # UTF-8 bytes: comparable between tokenizers


def effective_number(sizes: NDArray[np.int64]) -> float:
    """How many of one size would say as much (Kish 1965).

    >>> effective_number(np.array([10, 10, 10, 1000]))
    1.06...
    """
    return float(sizes.sum() ** 2 / (sizes.astype(np.float64) ** 2).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLosses:
    """Sums over the predicted tokens of each document. Padding and prompts are in none of them."""

    nll: NDArray[np.float64]  # nats
    targets: NDArray[np.int64]  # predicted tokens
    document_bytes: NDArray[np.int64] | None = None
    source: NDArray[np.uint8] | None = None  # by document: position in source_names
    source_names: tuple[str, ...] = ()

    @property
    def effective_documents(self) -> float:
        """How many documents of one size would say as much: Kish's number, by tokens."""
        return effective_number(self.targets)

    def only(self, documents: NDArray[np.bool_]) -> DocumentLosses:
        """Of some documents."""
        return replace(
            self,
            nll=self.nll[documents],
            targets=self.targets[documents],
            document_bytes=None if self.document_bytes is None else self.document_bytes[documents],
            source=None if self.source is None else self.source[documents],
        )

    @property
    def largest_share(self) -> float:
        """Of all tokens, in one document."""
        return float(self.targets.max() / self.targets.sum())

    def measure(
        self, *, per: Per = Per.TOKEN, source_weights: Mapping[str, float] | None = None
    ) -> NDArray[np.float64]:
        """The weight of each document in the mean: its tokens or bytes, times the weight of its source."""
        if per is Per.BYTE and self.document_bytes is None:
            raise ScoreError("the corpus is known as tokens only, so no loss per byte exists: use per token")
        size = self.targets if per is Per.TOKEN else self.document_bytes
        assert size is not None
        return size * self.emphasis(source_weights)

    def emphasis(self, source_weights: Mapping[str, float] | None) -> NDArray[np.float64]:
        """The weight of each document's source; 1 for a source that is not named."""
        if not source_weights:
            return np.ones(len(self.nll))
        unknown = sorted(set(source_weights) - set(self.source_names))
        if unknown or self.source is None:
            known = ", ".join(self.source_names) or "none"
            raise ScoreError(
                f"no document is of the source {', '.join(unknown)!r} (sources: {known}): correct the weights"
            )
        if any(not math.isfinite(weight) or weight < 0 for weight in source_weights.values()):
            raise ScoreError(f"source weights are {dict(source_weights)}: use finite numbers of at least 0")
        return np.array([source_weights.get(name, 1.0) for name in self.source_names])[self.source]

    def loss(self, *, per: Per = Per.TOKEN, source_weights: Mapping[str, float] | None = None) -> float:
        """The mean negative log-likelihood; NaN if any weighted document has one."""
        weights = self.emphasis(source_weights)
        total = float(self.measure(per=per, source_weights=source_weights).sum())
        if total <= 0:
            raise ScoreError("no document has a positive weight: give at least one source a positive weight")
        used = weights > 0
        return float((self.nll[used] * weights[used]).sum()) / total

    def pieces(self, most: int = PIECES) -> tuple[float, ...]:
        """The loss on up to `most` parts of the documents, every part of whole documents dealt out in turn."""
        if len(self.nll) < 2:
            return ()
        parts = [slice(i, None, most) for i in range(min(most, len(self.nll)))]
        return tuple(float(self.nll[part].sum() / self.targets[part].sum()) for part in parts)

    def by_source(self, *, per: Per = Per.TOKEN) -> dict[str, float]:
        """The loss of each source alone."""
        if self.source is None:
            return {}
        found: dict[str, float] = {}
        for number, name in enumerate(self.source_names):
            if (self.source == number).any():
                weights = {other: float(other == name) for other in self.source_names}
                found[name] = self.loss(per=per, source_weights=weights)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One configuration of a suite: how each item went."""

    name: str
    category: str
    correct: NDArray[np.float64]  # by item, 0 to 1
    chance: float | None = None  # None: not known
    answer_loss: NDArray[np.float64] | None = None  # by item: nats of the right answer
    document: NDArray[np.int64] | None = None  # by item: what it was made of; None: every item stands for itself

    @property
    def accuracy(self) -> float:
        """The mean over items."""
        return float(self.correct.mean())


def by_unit(
    tasks: Sequence[TaskResult], values: Sequence[NDArray[np.float64]]
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Sums and numbers of items by independent unit, in strata.

    An item that was drawn is a unit of its own, and its configuration a stratum. Configurations made of documents are the
    rows of one stratum, with a column for each document: its items, of whichever configuration, come and go together.
    """
    apart = [found for task, found in zip(tasks, values, strict=True) if task.document is None]
    made = [(task.document, found) for task, found in zip(tasks, values, strict=True) if task.document is not None]
    sums, counts = apart, [np.ones(len(part)) for part in apart]
    if made:
        documents = np.unique(np.concatenate([document for document, _ in made]))
        shape = (len(made), len(documents))
        matrix, number = np.zeros(shape), np.zeros(shape)
        for row, (document, found) in enumerate(made):
            place = np.searchsorted(documents, document)
            np.add.at(matrix[row], place, found)
            np.add.at(number[row], place, 1.0)
        sums, counts = [*sums, matrix], [*counts, number]
    return sums, counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What one model scored on one split. Use one of the two types below."""

    losses: DocumentLosses | None = None
    tasks: tuple[TaskResult, ...] = ()
    kept: tuple[str, ...] = ()  # names of the score records that hold it; of several, it is their mean

    @property
    def overall_average(self) -> float | None:
        """The mean over configurations, not over categories (app:evaluation-protocol)."""
        return math.fsum(task.accuracy for task in self.tasks) / len(self.tasks) if self.tasks else None

    @property
    def category_means(self) -> dict[str, float]:
        """The mean over the configurations of each category."""
        groups: dict[str, list[float]] = {}
        for task in self.tasks:
            groups.setdefault(task.category, []).append(task.accuracy)
        return {category: math.fsum(values) / len(values) for category, values in groups.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationScores(Scores):
    """Ranks checkpoints and chooses N, K and strategy."""

    def cost(self, rank_by: Signal) -> float:
        """What is to be small when validation chooses."""
        loss = None if self.losses is None else self.losses.loss()
        return rank_by.cost(loss if rank_by is Signal.LOSS else self.overall_average)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScores(Scores):
    """Reported, once per chosen model. No function that chooses accepts it."""

    __test__ = False  # pytest: not a test class


KIND = TypeVar("KIND", ValidationScores, TestScores)


def mean_scores(runs: Sequence[KIND]) -> KIND:
    """Documents and items averaged over models that were scored on the same."""
    tasks = [
        replace(same[0], correct=np.mean([task.correct for task in same], axis=0))
        for same in zip(*(run.tasks for run in runs), strict=True)
    ]
    losses = [run.losses for run in runs if run.losses is not None]
    return replace(
        runs[0],
        losses=replace(losses[0], nll=np.mean([one.nll for one in losses], axis=0)) if losses else None,
        tasks=tuple(tasks),
        kept=tuple(name for run in runs for name in run.kept),
    )
