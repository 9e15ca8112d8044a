"""Validation loss: the negative log-likelihood of every document, summed per document.

    TokenSet -> windows (sorted by length) -> batches -> model -> sums per document (DocumentLosses)

Masking: a document is read after one end-of-text token, so its first token is predicted too; its own end-of-text is
predicted last. A document longer than the window is cut into windows that share one token, so that every token is
predicted exactly once. Padding follows the tokens and is in no sum. Nothing is predicted across documents.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.scores import DocumentLosses
from trajsoup.errors import ScoreError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.passes import forward_passes

if TYPE_CHECKING:
    import torch

_IS_SPLIT: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
LOGIT_BYTES = 4 << 20  # of the logits that exist at once: they should stay in a core's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSettings:
    """What shapes a validation loss. The batch does not, beyond the order of float additions inside the model."""

    window: int = 256  # tokens of context, at most
    batch_tokens: int = 8192  # read at once
    max_documents: int | None = None  # score the first so many documents; None: all

    def identity(self) -> dict[str, Any]:
        """What a cached score depends on."""
        return {"window": self.window, "max_documents": self.max_documents, "masking": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Windows of like length: inputs, targets, and whose they are."""

    inputs: NDArray[np.int64]  # windows x length
    targets: NDArray[np.int64]
    lengths: NDArray[np.int64]  # predicted tokens of each window; the rest is padding
    document: NDArray[np.int64]


def document_losses(model: Any, tokens: TokenSet, *, settings: ValidationSettings | None = None) -> DocumentLosses:
    """Run the model over every document and return the sums. NaN stays NaN: it is a result, not an error."""
    import torch

    settings = settings or ValidationSettings()
    count = tokens.n_documents if settings.max_documents is None else min(settings.max_documents, tokens.n_documents)
    require_predictable(tokens, count=count)
    require_fits(model, tokens, settings=settings)
    nll = np.zeros(count)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            score = batch_scorer(model)

        def sums(batch: Batch) -> tuple[Batch, NDArray[np.float64]]:
            losses = score(batch.inputs, batch.targets)
            inside = np.arange(losses.shape[1]) < batch.lengths[:, None]
            return batch, np.where(inside, losses, 0.0).sum(axis=1, dtype=np.float64)

        found = forward_passes(model, settings.batch_tokens, sums, batches(tokens, count=count, settings=settings))
        for batch, losses in found:
            np.add.at(nll, batch.document, losses)
    finally:
        model.train(was_training)
    return DocumentLosses(
        nll=nll,
        targets=tokens.targets[:count],
        document_bytes=None if tokens.document_bytes is None else tokens.document_bytes[:count],
        source=None if tokens.source is None else tokens.source[:count],
        source_names=tokens.source_names,
    )


def require_predictable(tokens: TokenSet, *, count: int) -> None:
    """Refuse a set without documents, and documents in which nothing can be predicted."""
    if count == 0:
        raise ScoreError("the corpus has no document to score: add documents")
    lengths = np.diff(tokens.starts[: count + 1])
    short = np.flatnonzero(lengths < 2)
    if len(short):
        raise ScoreError(
            f"document {int(short[0]):,} has {int(lengths[short[0]])} token, its end, so nothing in it can be scored "
            f"({len(short):,} such documents): remove empty documents from the corpus"
        )


def require_fits(model: Any, tokens: TokenSet, *, settings: ValidationSettings) -> None:
    """Refuse tokens that the model has no embedding for, and windows longer than it was made for."""
    config = model.config.get_text_config()
    largest = int(tokens.tokens.max())
    if largest >= config.vocab_size:
        raise ScoreError(
            f"the corpus holds the token {largest:,}, but the model has {config.vocab_size:,} embeddings: they have "
            "different tokenizers; tokenise the corpus with the model's own (corpus.tokenizer)"
        )
    longest = getattr(config, "max_position_embeddings", None)
    if settings.window < 1 or (longest is not None and settings.window > longest):
        raise ScoreError(
            f"the window is {settings.window} tokens and the model reads 1 to {longest}: choose one within"
        )


def batches(tokens: TokenSet, *, count: int, settings: ValidationSettings) -> Iterator[Batch]:
    """Cut documents into windows and group windows of like length, so that little is padding."""
    document, start, length = _windows(tokens.starts[:count], tokens.targets[:count], window=settings.window)
    for rows in like_lengths(length, batch_tokens=settings.batch_tokens):
        inputs, targets = (np.zeros((len(rows), length[rows[0]]), np.int64) for _ in range(2))
        for i, row in enumerate(rows):
            first, size = int(start[row]), int(length[row])
            begin = int(tokens.starts[document[row]])
            end_id = tokens.tokens[tokens.starts[document[row] + 1] - 1]
            targets[i, :size] = tokens.tokens[first : first + size]
            inputs[i, 0] = end_id if first == begin else tokens.tokens[first - 1]
            inputs[i, 1:size] = targets[i, : size - 1]
        yield Batch(inputs=inputs, targets=targets, lengths=length[rows], document=document[rows])


def like_lengths(lengths: NDArray[np.int64], *, batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Positions of as many lengths as fit into a batch together, the longest first."""
    order = np.argsort(-lengths, kind="stable")
    position = 0
    while position < len(order):
        rows = order[position : position + max(batch_tokens // int(lengths[order[position]]), 1)]
        position += len(rows)
        yield rows


def batch_scorer(model: Any) -> Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]:
    """Return a function from inputs and targets to the negative log-likelihood of every target."""
    import torch
    from torch.nn.functional import cross_entropy

    logits = logit_reader(model)

    def score(inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float32]:
        wanted = torch.from_numpy(targets).view(-1)
        parts = [
            cross_entropy(part, wanted[start : start + len(part)].to(part.device), reduction="none")
            for start, part in logits(inputs)
        ]
        return torch.cat(parts).view(targets.shape).cpu().numpy()

    return score


def logit_reader(model: Any) -> Callable[..., Iterator[tuple[int, torch.Tensor]]]:
    """Return a function from inputs to the float32 logits of a few tokens at a time, each with its first position.

    `positions` and `sees` (by token: which tokens of its line it attends to) are for lines that hold trees.

    Where the head is a plain layer after the body, it is applied to those few tokens only, so that the logits of a
    batch never exist together: they would be the largest tensor by far.
    """
    import torch

    device, dtype = next(model.parameters()).device, next(model.parameters()).dtype
    split = _split_head(model)
    step = max(LOGIT_BYTES // (4 * model.config.get_text_config().vocab_size), 1)

    def read(
        inputs: NDArray[np.int64],
        positions: NDArray[np.int64] | None = None,
        sees: NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[int, torch.Tensor]]:
        told: dict[str, Any] = {"input_ids": torch.from_numpy(inputs).to(device), "use_cache": False}
        if positions is not None and sees is not None:
            hidden = torch.from_numpy(~sees).to(device)[:, None]
            told["position_ids"] = torch.from_numpy(positions).to(device)
            told["attention_mask"] = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(
                hidden, torch.finfo(dtype).min
            )
        states = model(**told).logits if split is None else split[0](**told).last_hidden_state
        states = states.reshape(-1, states.shape[-1])
        for start in range(0, len(states), step):
            part = states[start : start + step]
            yield start, (part if split is None else split[1](part)).float()

    return read


def _split_head(model: Any) -> Sequence[Any] | None:
    """The body and the head, if applying one after the other is what the model does: some cap their logits.

    Tried once per model, for two short passes count beside a short corpus; other weights change nothing about it.
    """
    import torch

    body, head = getattr(model, "base_model", None), model.get_output_embeddings()
    if body is None or body is model or head is None:
        return None
    if model in _IS_SPLIT:
        return (body, head) if _IS_SPLIT[model] else None
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.arange(min(8, vocabulary), device=next(model.parameters()).device)[None]
    try:
        whole = model(input_ids=ids, use_cache=False).logits
        apart = head(body(input_ids=ids, use_cache=False).last_hidden_state)
    except (TypeError, AttributeError):
        return None
    same = torch.equal(whole, apart)
    if torch.isfinite(whole).all():  # a model that gives NaN tells nothing
        _IS_SPLIT[model] = same
    return (body, head) if same else None


def _windows(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], *, window: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Document, first target and number of targets of every window."""
    pieces = -(-lengths // window)
    document = np.repeat(np.arange(len(lengths)), pieces)
    within = np.arange(len(document)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = starts[document] + within * window
    size = np.minimum(window, lengths[document] - within * window)
    return document, first, size
