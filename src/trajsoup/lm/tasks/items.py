"""What a task is: a seeded generator of items, each a prompt with one right answer.

    Task.draw(Random) -> Item -> hash -> split        items(task, split=...) draws until the split has enough

An item belongs to the split that its own hash names, so no item of validation or test is ever trained on, and none is
in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from trajsoup.core.splits import Split, document_hash, split_of
from trajsoup.errors import ScoreError

SHARES = {Split.PRETRAIN: 0.3, Split.TRAIN: 0.4, Split.VALIDATION: 0.15, Split.TEST: 0.15}
PATIENCE = 200  # draws per wanted item before a task counts as too small


class Metric(StrEnum):
    """How an item is scored."""

    OPTIONS = "options"  # the right option has the highest likelihood
    EXACT = "exact"  # the greedily generated line equals the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question. The model reads `prompt` and should continue with `answer` and a line end."""

    prompt: str
    answer: str
    options: tuple[str, ...] = ()  # the answer among them; empty for a task that is only generated

    @property
    def key(self) -> str:
        """The item's name: the hash of what the model reads. The answer follows from it."""
        return document_hash(self.prompt)

    @property
    def text(self) -> str:
        """The item as it is trained on."""
        return f"{self.prompt}{self.answer}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One configuration of a suite, however its items come about."""

    name: str
    category: str
    metric: Metric
    chance: float  # the accuracy of an answerer who knows the format and nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Configuration):
    """A configuration whose items are drawn."""

    draw: Callable[[Random], Item]


def items(task: Task, *, split: Split, count: int, seed: int = 0) -> tuple[Item, ...]:
    """Return `count` different items of one split, the same for the same seed. A larger count only adds items."""
    random = Random(f"{task.name}/{split.value}/{seed}")
    found: dict[str, Item] = {}
    for _ in range(count * PATIENCE):
        if len(found) == count:
            break
        item = task.draw(random)
        if split_of(item.key, shares=SHARES) is split:
            found.setdefault(item.key, item)
    if len(found) < count:
        raise ScoreError(
            f"task {task.name!r} has only about {len(found)} different {split.value} items, but {count} are wanted: "
            "ask for fewer"
        )
    require_answerable(tuple(found.values()), task=task.name)
    return tuple(found.values())


def require_answerable(found: Sequence[Item], *, task: str) -> None:
    """Refuse items that nobody could get right, or that everybody would."""
    for number, item in enumerate(found):
        if not item.answer.strip():
            raise ScoreError(f"item {number} of task {task!r} has an empty answer, a free point: remove it")
        if not item.options:
            continue
        if item.answer not in item.options:
            raise ScoreError(
                f"item {number} of task {task!r} has no correct option: the answer {item.answer!r} is not among "
                f"{', '.join(repr(option) for option in item.options)}. Add it, or remove the item"
            )
        if len(set(item.options)) < max(2, len(item.options)):
            raise ScoreError(
                f"item {number} of task {task!r} repeats an option or has only one: give it different ones"
            )


def items_digest(found: Sequence[Item]) -> str:
    """sha256 of items, in order."""
    digest = hashlib.sha256()
    for item in found:
        digest.update("\0".join((item.prompt, item.answer, *item.options, "\n")).encode())
    return digest.hexdigest()
