"""Score a suite: likelihood of options, and exact match of the greedy answer, both from plain forward passes.

    items -> sequences of tokens, and the spans in them that are answers -> forests -> batches of like size
          -> per token: likelihood, is it the argmax? -> per span -> per item

Greedy generation yields the answer exactly when every token of the answer, and then the line end, is the most likely
after those before it. So one pass over prompt and answer decides what generating would, and nothing is generated. What
sequences have in common is read once (forests.py), by models that can be told what each token sees.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
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
from trajsoup.lm.tasks.forests import planted, side_by_side
from trajsoup.lm.tasks.items import Item, Metric, Task, items, items_digest, require_answerable
from trajsoup.lm.tasks.prepared import PreparedSuite, PreparedTask
from trajsoup.lm.tokenizer import end_of_text_id, load_tokenizer
from trajsoup.lm.validate import like_lengths, logit_reader

BATCH_TOKENS = 8192
TREE = ((1, 2, 3, 4), (1, 2, 3, 1), (1, 2, 2, 1), (2, 1, 2, 1))  # tokens that every vocabulary has
ALIKE = 1e-4  # of the largest logit: what another order of additions may change
_READS_TREES: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
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
        read, shared = logit_reader(model), reads_trees(model)
    sequences, wood = suite.sequences, suite.trees if shared else suite.lines
    offsets = np.cumsum([0, *(len(task.sequences) for task in suite.tasks)])
    spans = np.concatenate(
        [task.spans + np.array([offset, 0, 0]) for task, offset in zip(suite.tasks, offsets[:-1], strict=True)]
    )
    asked: list[list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = [[] for _ in wood.forests]
    for number, (sequence, first, last) in enumerate(spans.tolist()):
        nodes, tokens = wood.paths[sequence][first - 1 : last - 1], sequences[sequence][first:last]
        asked[wood.forest_of[sequence]].append((number, nodes, np.array(tokens)))
    likelihood = np.zeros(len(spans))
    greedy = np.ones(len(spans), np.bool_)

    def answer(rows: NDArray[np.int64]) -> list[tuple[int, float, bool]]:
        inputs, positions, sees = side_by_side([wood.forests[row] for row in rows])
        width = inputs.shape[1]
        wanted = [(n, i * width + nodes, tokens) for i, row in enumerate(rows) for n, nodes, tokens in asked[row]]
        at, token = (np.concatenate([part[i] for part in wanted]) for i in (1, 2))
        values, hits = np.zeros(len(at)), np.zeros(len(at), np.bool_)
        for start, part in read(inputs, positions, sees) if shared else read(inputs):
            here = np.flatnonzero((at >= start) & (at < start + len(part)))
            if len(here) == 0:
                continue
            logits = part[torch.from_numpy(at[here] - start).to(part.device)]
            target = torch.from_numpy(token[here]).to(part.device)
            values[here] = torch.log_softmax(logits, -1).gather(-1, target[:, None])[:, 0].cpu().numpy()
            hits[here] = (logits.argmax(-1) == target).cpu().numpy()
        ends = np.cumsum([len(nodes) for _, nodes, _ in wanted])[:-1]
        return [
            (number, float(value.sum()), bool(hit.all()))
            for (number, _, _), value, hit in zip(wanted, np.split(values, ends), np.split(hits, ends), strict=True)
        ]

    sizes = np.array([len(forest.tokens) for forest in wood.forests])
    for found in forward_passes(model, batch_tokens, answer, like_lengths(sizes, batch_tokens=batch_tokens)):
        for number, value, hit in found:
            likelihood[number], greedy[number] = value, hit
    return likelihood, greedy & np.isfinite(likelihood)  # the argmax of NaN is no answer


def reads_trees(model: Any) -> bool:
    """Whether a model that is told what each token sees, and where it stands, answers as it does to each line alone.

    Tried once per model: other weights change nothing about it. Recurrent layers and sliding windows see what they see.
    """
    if model in _READS_TREES:
        return _READS_TREES[model]
    import torch

    read = logit_reader(model)
    wood, lines = planted(TREE), planted(TREE, shared=False)
    try:
        whole = torch.cat([part for _, part in read(*side_by_side(wood.forests))])
        alone = torch.cat([part for _, part in read(side_by_side(lines.forests)[0])]).view(
            len(TREE), -1, whole.shape[-1]
        )
    except (TypeError, ValueError, RuntimeError, IndexError):
        return False
    if not torch.isfinite(alone).all():  # a model that gives NaN tells nothing
        return False
    apart = torch.stack([alone[line] for line in lines.forest_of.tolist()])
    together = torch.stack([whole[torch.from_numpy(path)] for path in wood.paths])
    _READS_TREES[model] = bool((apart - together).abs().max() <= ALIKE * apart.abs().max())
    return _READS_TREES[model]
