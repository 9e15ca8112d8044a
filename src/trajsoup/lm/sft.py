"""Supervised fine-tuning of a live model: the same pairs, tokens, optimizer, schedule and order for every model.

    pairs of prompt and answer -> tokens -> steps of AdamW (loss on the answer alone) -> the model, changed in place

Only the answer and its line end are predicted; the prompt is read and is in no loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.scores import DocumentLosses
from trajsoup.errors import TrainError
from trajsoup.lm.tasks.items import Item, items_digest
from trajsoup.lm.tasks.scoring import LINE_END
from trajsoup.lm.tokenizer import end_of_text_id, load_tokenizer

IGNORED = -100  # what transformers leaves out of the loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Tokenised prompts and answers."""

    tokens: tuple[tuple[int, ...], ...]
    prompt_lengths: tuple[int, ...]
    digest: str

    @property
    def answer_tokens(self) -> int:
        """Tokens with a loss, over one epoch."""
        return sum(map(len, self.tokens)) - sum(self.prompt_lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """Everything that shapes it."""

    epochs: int = 1
    batch: int = 16
    peak_lr: float = 1e-3  # AdamW, linear decay to 0
    seed: int = 0  # of the order


def prepare_pairs(items: Sequence[Item], *, tokenizer: Path) -> Pairs:
    """Tokenise prompt and answer apart, as the suite does, so that the border between them is a border of tokens."""
    if not items:
        raise TrainError("there is nothing to fine-tune on: ask for at least one item")
    encoder = load_tokenizer(tokenizer)
    end = end_of_text_id(encoder, tokenizer)
    prompts = [(end, *e.ids) for e in encoder.encode_batch([i.prompt for i in items], add_special_tokens=False)]
    answers = encoder.encode_batch([f"{i.answer}{LINE_END}" for i in items], add_special_tokens=False)
    return Pairs(
        tokens=tuple((*prompt, *answer.ids) for prompt, answer in zip(prompts, answers, strict=True)),
        prompt_lengths=tuple(map(len, prompts)),
        digest=items_digest(items),
    )


def masked_batch(pairs: Pairs, chosen: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Inputs, labels and attention of a few pairs, padded on the right; prompts and padding have no label."""
    longest = max(len(pairs.tokens[i]) for i in chosen)
    inputs = np.zeros((len(chosen), longest), np.int64)
    labels = np.full((len(chosen), longest), IGNORED, np.int64)
    mask = np.zeros((len(chosen), longest), np.int64)
    for line, i in enumerate(chosen):
        size, prompt = len(pairs.tokens[i]), pairs.prompt_lengths[i]
        inputs[line, :size] = pairs.tokens[i]
        labels[line, prompt:size] = pairs.tokens[i][prompt:]
        mask[line, :size] = 1
    return inputs, labels, mask


def answer_losses(model: Any, pairs: Pairs, *, batch: int = 64) -> DocumentLosses:
    """The negative log-likelihood of each pair's answer after its prompt; prompts and padding are in no sum."""
    import torch

    nll = np.zeros(len(pairs.tokens))
    device = next(model.parameters()).device
    order = sorted(range(len(pairs.tokens)), key=lambda i: len(pairs.tokens[i]))  # pairs of one length: little padding
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            inputs, labels, mask = (torch.from_numpy(a).to(device) for a in masked_batch(pairs, chosen))
            logits = model(input_ids=inputs, attention_mask=mask, use_cache=False).logits[:, :-1].float()
            losses = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), labels[:, 1:], ignore_index=IGNORED, reduction="none"
            )
            nll[chosen] = losses.sum(dim=1).double().cpu().numpy()
    targets = np.array([len(t) - p for t, p in zip(pairs.tokens, pairs.prompt_lengths, strict=True)], np.int64)
    return DocumentLosses(nll=nll, targets=targets)


def fine_tune(model: Any, pairs: Pairs, *, settings: FineTuning) -> None:
    """Train the model in place."""
    import torch

    order = np.random.default_rng(settings.seed)
    batches: list[NDArray[np.int64]] = []
    for _ in range(settings.epochs):
        shuffled = order.permutation(len(pairs.tokens))
        batches += [shuffled[i : i + settings.batch] for i in range(0, len(shuffled), settings.batch)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.peak_lr, betas=(0.9, 0.95), weight_decay=0.0)
    device = next(model.parameters()).device
    model.train()
    for step, chosen in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = settings.peak_lr * (1 - step / len(batches))
        inputs, labels, mask = (torch.from_numpy(a).to(device) for a in masked_batch(pairs, chosen.tolist()))
        loss = model(input_ids=inputs, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.eval()
