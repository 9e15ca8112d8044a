"""Score a suite: likelihood of options, and exact match of the greedy answer, both from plain forward passes.

    items -> prompts and continuations as tokens -> batches of like length -> per token: likelihood, is it the argmax?

Greedy generation yields the answer exactly when every token of the answer, and then the line end, is the most likely
after those before it. So one pass over prompt and answer decides what generating would, and nothing is generated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.scores import TaskResult
from trajsoup.core.splits import Split
from trajsoup.errors import ScoreError
from trajsoup.lm.tasks.items import Item, Metric, Task, items, items_digest, require_answerable
from trajsoup.lm.tokenizer import end_of_text_id, load_tokenizer
from trajsoup.lm.validate import logit_reader

BATCH_TOKENS = 8192
LINE_END = "\n"  # ends every continuation, so that 8 is not taken for the beginning of 82


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTask:
    """A configuration with its items as tokens. One sequence per option, or one per item for exact match."""

    task: Task
    contexts: tuple[tuple[int, ...], ...]  # by sequence
    continuations: tuple[tuple[int, ...], ...]
    first: NDArray[np.int64]  # by item: its first sequence; last entry = number of sequences
    right: NDArray[np.int64]  # by item: which of its sequences is the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSuite:
    """What is scored again and again: the same items for every model."""

    tasks: tuple[PreparedTask, ...]
    split: Split
    digest: str  # of items, metrics and tokens
    largest_token: int
    longest: int  # tokens of the longest sequence


def prepare_suite(
    suite: Sequence[Task], *, tokenizer: Path, split: Split, items_each: int = 100, seed: int = 0
) -> PreparedSuite:
    """Draw the items of one split and tokenise them."""
    if not suite:
        raise ScoreError("the suite has no task: name at least one")
    drawn = [(task, items(task, split=split, count=items_each, seed=seed)) for task in suite]
    return prepare_items(drawn, tokenizer=tokenizer, split=split)


def prepare_items(drawn: Sequence[tuple[Task, Sequence[Item]]], *, tokenizer: Path, split: Split) -> PreparedSuite:
    """Tokenise given items."""
    encoder = load_tokenizer(tokenizer)
    end = end_of_text_id(encoder, tokenizer)
    digest = hashlib.sha256()
    prepared: list[PreparedTask] = []
    for task, found in drawn:
        require_answerable(found, task=task.name)
        digest.update(f"{task.name} {task.metric.value} {items_digest(found)}\n".encode())
        offered = [item.options if task.metric is Metric.OPTIONS else (item.answer,) for item in found]
        if task.metric is Metric.OPTIONS and not all(offered):
            raise ScoreError(f"task {task.name!r} is scored by options, but an item has none: use exact match")
        prompts = encoder.encode_batch([item.prompt for item in found], add_special_tokens=False)
        answers = encoder.encode_batch(
            [f"{option}{LINE_END}" for options in offered for option in options], add_special_tokens=False
        )
        contexts = [(end, *prompt.ids) for prompt, options in zip(prompts, offered, strict=True) for _ in options]
        prepared.append(
            PreparedTask(
                task=task,
                contexts=tuple(contexts),
                continuations=tuple(tuple(answer.ids) for answer in answers),
                first=np.cumsum([0, *map(len, offered)]),
                right=np.array([o.index(item.answer) for item, o in zip(found, offered, strict=True)]),
            )
        )
    sequences = [(*a, *b) for p in prepared for a, b in zip(p.contexts, p.continuations, strict=True)]
    digest.update(str(sequences).encode())
    return PreparedSuite(
        tasks=tuple(prepared),
        split=split,
        digest=digest.hexdigest(),
        largest_token=max(max(sequence) for sequence in sequences),
        longest=max(map(len, sequences)),
    )


def score_suite(model: Any, suite: PreparedSuite, *, batch_tokens: int = BATCH_TOKENS) -> tuple[TaskResult, ...]:
    """Score every item of every configuration."""
    import torch

    vocab_size = model.config.get_text_config().vocab_size
    if suite.largest_token >= vocab_size:
        raise ScoreError(
            f"the suite holds the token {suite.largest_token:,}, but the model has {vocab_size:,} embeddings: they "
            "have different tokenizers; prepare the suite with the model's own"
        )
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if longest is not None and suite.longest > longest + 1:
        raise ScoreError(f"an item has {suite.longest} tokens, but the model reads {longest}: leave its task out")
    contexts = [context for task in suite.tasks for context in task.contexts]
    continuations = [continuation for task in suite.tasks for continuation in task.continuations]
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            likelihood, greedy = _score(model, contexts, continuations, batch_tokens=batch_tokens)
    finally:
        model.train(was_training)
    results: list[TaskResult] = []
    position = 0
    for task in suite.tasks:
        span = slice(position, position + len(task.contexts))
        position = span.stop
        correct = _correct(task, likelihood[span], greedy[span])
        results.append(
            TaskResult(name=task.task.name, category=task.task.category, correct=correct, chance=task.task.chance)
        )
    return tuple(results)


def _correct(task: PreparedTask, likelihood: NDArray[np.float64], greedy: NDArray[np.bool_]) -> NDArray[np.float64]:
    if task.task.metric is Metric.EXACT:
        return greedy.astype(np.float64)
    won: list[float] = []
    for first, last, right in zip(task.first[:-1], task.first[1:], task.right, strict=True):
        options = likelihood[first:last]
        others = np.delete(options, right)
        # A model that gives every option the same likelihood, or NaN, has not chosen the right one.
        won.append(float((options[right] > others).all()))
    return np.array(won)


def _score(
    model: Any, contexts: Sequence[tuple[int, ...]], continuations: Sequence[tuple[int, ...]], *, batch_tokens: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Log-likelihood of every continuation, and whether greedy generation would yield it."""
    import torch

    read = logit_reader(model)
    likelihood = np.zeros(len(contexts))
    greedy = np.zeros(len(contexts), np.bool_)
    sizes = np.array([len(a) + len(b) - 1 for a, b in zip(contexts, continuations, strict=True)])
    order = np.argsort(-sizes, kind="stable")
    position = 0
    while position < len(order):
        longest = int(sizes[order[position]])
        rows = order[position : position + max(batch_tokens // longest, 1)]
        position += len(rows)
        inputs, targets = (np.zeros((len(rows), longest), np.int64) for _ in range(2))
        wanted = np.zeros((len(rows), longest), np.bool_)
        for i, row in enumerate(rows):
            sequence = (*contexts[row], *continuations[row])
            inputs[i, : len(sequence) - 1] = sequence[:-1]
            targets[i, : len(sequence) - 1] = sequence[1:]
            wanted[i, len(contexts[row]) - 1 : len(sequence) - 1] = True
        chosen = np.flatnonzero(wanted.reshape(-1))
        flat = torch.from_numpy(targets).view(-1)
        values, hits = np.zeros(wanted.size), np.zeros(wanted.size, np.bool_)
        for start, part in read(inputs):
            here = chosen[(chosen >= start) & (chosen < start + len(part))]
            if len(here) == 0:
                continue
            logits = part[torch.from_numpy(here - start).to(part.device)]
            target = flat[torch.from_numpy(here)].to(part.device)
            values[here] = torch.log_softmax(logits, -1).gather(-1, target[:, None])[:, 0].cpu().numpy()
            hits[here] = (logits.argmax(-1) == target).cpu().numpy()
        likelihood[rows] = np.where(wanted, values.reshape(wanted.shape), 0).sum(axis=1)
        greedy[rows] = (hits.reshape(wanted.shape) | ~wanted).all(axis=1)
        greedy[rows] &= np.isfinite(likelihood[rows])  # the argmax of NaN is no answer
    return likelihood, greedy
