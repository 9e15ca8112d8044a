"""Score a suite: likelihood of options, and exact match of the greedy answer, both from plain forward passes.

    items -> sequences of tokens, and the spans in them that are answers -> batches of like length
          -> per token: likelihood, is it the argmax? -> per span -> per item

Greedy generation yields the answer exactly when every token of the answer, and then the line end, is the most likely
after those before it. So one pass over prompt and answer decides what generating would, and nothing is generated. Items
made of a document are spans of one sequence: a pass over the document answers all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.scores import TaskResult
from trajsoup.core.splits import Split
from trajsoup.errors import ScoreError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.passes import forward_passes
from trajsoup.lm.tasks.documents import document_tasks
from trajsoup.lm.tasks.items import Item, Metric, Task, items, items_digest, require_answerable
from trajsoup.lm.tasks.prepared import PreparedSuite, PreparedTask
from trajsoup.lm.tokenizer import end_of_text_id, load_tokenizer
from trajsoup.lm.validate import Batch, like_lengths, logit_reader

BATCH_TOKENS = 8192
LINE_END = "\n"  # ends every continuation, so that 8 is not taken for the beginning of 82


def prepare_suite(
    suite: Sequence[Task],
    *,
    tokenizer: Path,
    split: Split,
    items_each: int = 100,
    seed: int = 0,
    documents: TokenSet | None = None,
) -> PreparedSuite:
    """Draw the items of one split and tokenise them; those of `documents` are made of that split's own text."""
    if not suite:
        raise ScoreError("the suite has no task: name at least one")
    drawn = [(task, items(task, split=split, count=items_each, seed=seed)) for task in suite]
    made = () if documents is None else document_tasks(documents, tokenizer=tokenizer, items_each=items_each, seed=seed)
    return prepare_items(drawn, tokenizer=tokenizer, split=split, more=made)


def prepare_items(
    drawn: Sequence[tuple[Task, Sequence[Item]]],
    *,
    tokenizer: Path,
    split: Split,
    more: Sequence[PreparedTask] = (),
) -> PreparedSuite:
    """Tokenise given items; `more` are tokens already."""
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
        sequences = [(*context, *answer.ids) for context, answer in zip(contexts, answers, strict=True)]
        prepared.append(
            PreparedTask(
                task=task,
                sequences=tuple(sequences),
                spans=np.array([(i, len(c), len(s)) for i, (c, s) in enumerate(zip(contexts, sequences, strict=True))]),
                first=np.cumsum([0, *map(len, offered)]),
                right=np.array([o.index(item.answer) for item, o in zip(found, offered, strict=True)]),
            )
        )
    prepared += more
    for made in more:
        digest.update(f"{made.task.name} {made.task.metric.value} {made.spans.tobytes().hex()}\n".encode())
    sequences = [sequence for task in prepared for sequence in task.sequences]
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

    vocab_size = model.config.get_text_config().vocab_size
    if suite.largest_token >= vocab_size:
        raise ScoreError(
            f"the suite holds the token {suite.largest_token:,}, but the model has {vocab_size:,} embeddings: they "
            "have different tokenizers; prepare the suite with the model's own"
        )
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if longest is not None and suite.longest > longest + 1:
        raise ScoreError(f"an item has {suite.longest} tokens, but the model reads {longest}: leave its task out")
    was_training = model.training
    model.eval()
    try:
        likelihood, greedy = _score(model, suite, batch_tokens=batch_tokens)
    finally:
        model.train(was_training)
    results: list[TaskResult] = []
    position = 0
    for prepared in suite.tasks:
        span = slice(position, position + len(prepared.spans))
        position = span.stop
        answers = prepared.first[:-1] + prepared.right
        results.append(
            TaskResult(
                name=prepared.task.name,
                category=prepared.task.category,
                correct=_correct(prepared, likelihood[span], greedy[span]),
                chance=prepared.task.chance,
                answer_loss=-likelihood[span][answers],
                document=prepared.document,
            )
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


def _score(model: Any, suite: PreparedSuite, *, batch_tokens: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Log-likelihood of every span, and whether greedy generation would yield it."""
    import torch

    with torch.inference_mode():
        read = logit_reader(model)
    sequences = [sequence for task in suite.tasks for sequence in task.sequences]
    offsets = np.cumsum([0, *(len(task.sequences) for task in suite.tasks)])
    spans = np.concatenate(
        [task.spans + np.array([offset, 0, 0]) for task, offset in zip(suite.tasks, offsets[:-1], strict=True)]
    )
    wanted_of = _by_sequence(spans, count=len(sequences))
    likelihood = np.zeros(len(spans))
    greedy = np.ones(len(spans), np.bool_)

    def answer(batch: Batch) -> tuple[Batch, NDArray[np.float64], NDArray[np.bool_]]:
        wanted = np.zeros(batch.inputs.shape, np.bool_)
        for i, row in enumerate(batch.document):
            for span in wanted_of[row]:
                wanted[i, spans[span, 1] - 1 : spans[span, 2] - 1] = True
        chosen = np.flatnonzero(wanted.reshape(-1))
        flat = torch.from_numpy(batch.targets).view(-1)
        values, hits = np.zeros(wanted.size), np.zeros(wanted.size, np.bool_)
        for start, part in read(batch.inputs):
            here = chosen[(chosen >= start) & (chosen < start + len(part))]
            if len(here) == 0:
                continue
            logits = part[torch.from_numpy(here - start).to(part.device)]
            target = flat[torch.from_numpy(here)].to(part.device)
            values[here] = torch.log_softmax(logits, -1).gather(-1, target[:, None])[:, 0].cpu().numpy()
            hits[here] = (logits.argmax(-1) == target).cpu().numpy()
        return batch, values.reshape(wanted.shape), hits.reshape(wanted.shape)

    for batch, values, hits in forward_passes(model, batch_tokens, answer, _batches(sequences, batch_tokens)):
        for i, row in enumerate(batch.document):
            for span in wanted_of[row]:
                part = slice(spans[span, 1] - 1, spans[span, 2] - 1)
                likelihood[span], greedy[span] = values[i, part].sum(), hits[i, part].all()
    return likelihood, greedy & np.isfinite(likelihood)  # the argmax of NaN is no answer


def _batches(sequences: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[Batch]:
    """Sequences of like length; `document` numbers them."""
    lengths = np.array([len(sequence) - 1 for sequence in sequences])
    for rows in like_lengths(lengths, batch_tokens=batch_tokens):
        inputs, targets = (np.zeros((len(rows), lengths[rows[0]]), np.int64) for _ in range(2))
        for i, row in enumerate(rows):
            sequence = sequences[row]
            inputs[i, : len(sequence) - 1] = sequence[:-1]
            targets[i, : len(sequence) - 1] = sequence[1:]
        yield Batch(inputs=inputs, targets=targets, lengths=lengths[rows], document=rows)


def _by_sequence(spans: NDArray[np.int64], *, count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, sequence in enumerate(spans[:, 0]):
        found[sequence].append(number)
    return found
