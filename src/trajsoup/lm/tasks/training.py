"""Task items as training data: documents for mid-training, pairs of prompt and response for fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from trajsoup.core.splits import Split, split_of
from trajsoup.lm.documents import Document
from trajsoup.lm.tasks import mid_training, post_training
from trajsoup.lm.tasks.items import SHARES, Item, items_digest

DOCUMENT_ITEMS = 8


def task_documents(split: Split, *, characters: int, seed: int = 0) -> Iterator[Document]:
    """Yield documents of a few items of one task each, tasks in turn, until there are about so many characters.

    Items repeat where a task has few: what is kept apart is the splits.
    """
    random = Random(f"documents/{split.value}/{seed}")
    written = 0
    while written < characters:
        for task in mid_training.SUITE:
            drawn: list[Item] = []
            while len(drawn) < DOCUMENT_ITEMS:
                item = task.draw(random)
                if split_of(item.key, shares=SHARES) is split:
                    drawn.append(item)
            text = "".join(item.text for item in drawn)
            written += len(text)
            yield Document(text=text, source=f"tasks:{task.category}")


def fine_tuning_items(*, count: int, split: Split = Split.TRAIN, seed: int = 0) -> tuple[Item, ...]:
    """Draw chat items of all six scenarios in turn; the loss of fine-tuning is on the answer and its line end."""
    random = Random(f"fine-tuning/{split.value}/{seed}")
    drawn: list[Item] = []
    while len(drawn) < count:
        task = post_training.SUITE[len(drawn) % len(post_training.SUITE)]
        item = task.draw(random)
        if split_of(item.key, shares=SHARES) is split:
            drawn.append(item)
    return tuple(drawn)


def tasks_digest() -> str:
    """sha256 of a few items of every task that documents hold: another digest means that the generators were changed."""
    random = Random("digest")
    return items_digest([task.draw(random) for task in mid_training.SUITE for _ in range(16)])
