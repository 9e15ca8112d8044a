"""Train the bend of a curve between two models (Garipov 2018): each step samples t and learns from the model there.

    ends (rows) -> streamed into one live model, copied -> bend at their mean -> steps -> the bend as a checkpoint

In memory are the model with its gradient, the two ends, the bend and Adam's two moments: seven models. What is trained is
the bend alone; the gradient with respect to it is its share times that with respect to the model at t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trajsoup.core.curves import curve_shares
from trajsoup.core.soup import Row
from trajsoup.errors import TrainError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.live import load_model, stream_rows
from trajsoup.lm.placement import find_placement
from trajsoup.lm.slopes import backward, shuffled, whole_batches
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.formats.safetensors import SINGLE
from trajsoup.store.json_file import json_text, load_json
from trajsoup.store.publish import publishing, write_atomic
from trajsoup.store.regular import copy_small

if TYPE_CHECKING:
    import torch

SEED = 0  # of t
LEARNED = "bend.json"  # beside its weights: the tokens that it learned from


@dataclass(frozen=True, slots=True, kw_only=True)
class Bending:
    """How a bend is trained."""

    kind: str  # of core/curves
    tokens: int  # at least so many are learned from
    peak_lr: float  # of Adam, with linear decay to 0
    window: int


def train_bend(
    ends: tuple[Row, Row],
    checkpoints: Mapping[str, Checkpoint],
    tokens: TokenSet,
    out: Path,
    *,
    source: Checkpoint,
    settings: Bending,
    progress: Callable[[int], None] = lambda tokens: None,
) -> int:
    """Train the bend between two rows and write it as a checkpoint like `source`; return the tokens that it learned from.

    One that is there already stays.
    """
    import torch

    if out.exists():
        return int(load_json(out / LEARNED)["tokens"])
    model = load_model(source)
    first, second = ({n: t.clone() for n, t in _state(model).items()} for _ in stream_rows(model, checkpoints, ends))
    trained = {name for name, _ in model.named_parameters()}
    bend = {name: ((first[name] + second[name]) / 2).requires_grad_(name in trained) for name in first}
    optimizer = torch.optim.Adam([bend[name] for name in trained], lr=settings.peak_lr)
    found, chance = whole_batches(model, tokens, window=settings.window), np.random.default_rng(SEED)
    learned = step = 0
    while learned < settings.tokens:
        t = float(chance.random())
        shares = curve_shares(settings.kind, t)
        _become(model, [(first, shares[0]), (bend, shares[1]), (second, shares[2])])
        batch = shuffled(found, step)
        loss = backward(model, batch)
        if not np.isfinite(loss):
            raise TrainError(f"the bend diverged after {learned:,} tokens: lower connectivity.curve_lr")
        for name, parameter in model.named_parameters():
            bend[name].grad = None if parameter.grad is None else shares[1] * parameter.grad
        for group in optimizer.param_groups:
            group["lr"] = settings.peak_lr * (1 - learned / settings.tokens)
        optimizer.step()
        learned, step = learned + int(batch.lengths.sum()), step + 1
        progress(learned)
    _become(model, [(bend, 1.0)])
    _write(model, source, out, learned)
    return learned


def _state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every floating tensor that is saved, once: what is tied is under its first name."""
    seen: dict[int, str] = {}
    state = {n: t for n, t in model.state_dict().items() if t.is_floating_point()}
    return {n: t for n, t in state.items() if seen.setdefault(t.data_ptr(), n) == n}


def _become(model: torch.nn.Module, parts: list[tuple[Mapping[str, torch.Tensor], float]]) -> None:
    import torch

    with torch.no_grad():
        for name, tensor in _state(model).items():
            tensor.copy_(sum((share * part[name] for part, share in parts if share), torch.zeros(())))


def _write(model: torch.nn.Module, source: Checkpoint, out: Path, learned: int) -> None:
    """Under the names, shapes and types of the source, with its side files: rows may name it beside its like."""
    import torch
    from safetensors.torch import save_file

    kinds = {"BF16": torch.bfloat16, "F16": torch.float16}
    weights = {
        name: view.detach()
        .to(kinds.get(source.tensors[name].dtype, view.dtype))
        .clone(memory_format=torch.contiguous_format)
        for name, view in find_placement(model, list(source.tensors)).views.items()
    }
    with publishing(out) as unfinished:
        save_file(weights, unfinished / SINGLE, metadata={"format": "pt"})
        for file in source.side_files():
            (unfinished / file).parent.mkdir(parents=True, exist_ok=True)
            copy_small(source.folder / file, unfinished / file)
        write_atomic(unfinished / LEARNED, json_text({"tokens": learned}))
