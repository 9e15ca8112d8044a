"""What a branch leaves on disk: checkpoints of weights alone, one rolling full state, metrics.jsonl.

    branches/EXP1/checkpoint-400/        a Hugging Face folder: weights, config, tokenizer
    branches/EXP1/resume-state-819200/   weights, optimizers and random state of each process at a checkpoint, the last
                                         one or one a few seconds before
    branches/EXP1/metrics.jsonl          step, tokens, train_loss, ... one line each

Folders appear whole or not at all: written beside, synced, renamed. The state of the checkpoint before is removed only
after the new one is in place.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trajsoup.errors import MismatchError, OutputError, TrainError
from trajsoup.store.checkpoint import TOKENIZER_FILES, open_checkpoint, require_same
from trajsoup.store.confined import append_own
from trajsoup.store.json_file import decode_json
from trajsoup.store.publish import sync_tree, write_atomic
from trajsoup.store.regular import copy_small, read_words
from trajsoup.store.runs import STATE

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch.optim import Optimizer

    from trajsoup.lm.sharding import Placed

METRICS = "metrics.jsonl"
BESIDE_TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def save_checkpoint(
    placed: Placed, *, folder: Path, step: int, dtype: str, tokenizer: Path | None, accelerator: Accelerator
) -> Path:
    """Write checkpoint-<step>. One that is there already, from before a kill, is the same and stays."""
    out = folder / f"checkpoint-{step}"
    weights = placed.full_weights()
    if dtype != "float32":
        # buffers (a router's fp32 bias) keep their dtype, as they do when transformers loads a bf16 model
        trained = {name for name, _ in placed.model.named_parameters(remove_duplicate=False)}
        whole = placed.model.state_dict() if weights is None else weights
        cast: dict[int, torch.Tensor] = {}  # once for each storage: what is tied stays tied and is written once
        for name in trained & whole.keys():
            storage = whole[name].data_ptr()
            if storage not in cast:
                cast[storage] = whole[name].to(getattr(torch, dtype))
        weights = {n: cast[t.data_ptr()] if n in trained else t for n, t in whole.items()}
    if accelerator.is_main_process and not out.exists():
        with _whole(out) as unfinished:
            placed.model.save_pretrained(unfinished, state_dict=weights)
            for name in (*TOKENIZER_FILES, *BESIDE_TOKENIZER):
                if tokenizer is not None and (tokenizer / name).is_file():
                    copy_small(tokenizer / name, unfinished / name)
    accelerator.wait_for_everyone()
    return out


def require_like_fork_point(saved: Path, fork_point: Path) -> None:
    """Refuse a checkpoint that could not be compared with the fork point, before more is trained."""
    try:
        require_same(open_checkpoint(fork_point), open_checkpoint(saved))
    except MismatchError as error:
        raise TrainError(
            f"the branch's first checkpoint is not of the fork point's kind, so it ends here: {error}"
        ) from error


def save_state(
    placed: Placed, optimizers: list[Optimizer], *, folder: Path, step: int, tokens: int, accelerator: Accelerator
) -> None:
    """Write the rolling full state, each process its own part, then remove the state before it."""
    out = folder / f"{STATE}{tokens}"
    unfinished = folder / f".{out.name}.unfinished"
    if accelerator.is_main_process:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
    accelerator.wait_for_everyone()
    state = {
        "step": step,
        "tokens": tokens,
        "processes": accelerator.num_processes,
        "model": placed.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "random": torch.get_rng_state(),
        "device_random": torch.cuda.get_rng_state() if accelerator.device.type == "cuda" else None,
    }
    torch.save(state, unfinished / f"process-{accelerator.process_index}.pt")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(out, ignore_errors=True)
        sync_tree(unfinished)
        unfinished.rename(out)
        for older in _states(folder):
            if older != out:
                shutil.rmtree(older, ignore_errors=True)
    accelerator.wait_for_everyone()


def load_state(
    placed: Placed, optimizers: list[Optimizer], *, folder: Path, first_step: int, accelerator: Accelerator
) -> tuple[int, int]:
    """Restore the last full state; return its step and tokens, or (0, 0) for a branch that starts.

    A kill between the first checkpoint, at `first_step`, and its state leaves that checkpoint alone: the branch starts
    again and comes to the same one.
    """
    states = _states(folder)
    if not states:
        if any(path.name != f"checkpoint-{first_step}" for path in folder.glob("checkpoint-*")):
            raise TrainError(
                f"{folder} holds checkpoints but no state to resume from: move the folder away and train the branch again"
            )
        return 0, 0
    path = states[-1] / f"process-{accelerator.process_index}.pt"
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError) as error:
        raise TrainError(f"{path} cannot be read ({error}): was the branch started with fewer processes?") from error
    if state["processes"] != accelerator.num_processes:
        raise TrainError(
            f"{states[-1]} was written by {state['processes']} processes, and {accelerator.num_processes} would resume it: "
            "start the same number, so that the branch goes on exactly as it would have"
        )
    placed.model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    torch.set_rng_state(state["random"])
    if state["device_random"] is not None:
        torch.cuda.set_rng_state(state["device_random"])
    return state["step"], state["tokens"]


def append_metrics(folder: Path, row: dict[str, Any]) -> None:
    """Add one line to metrics.jsonl."""
    with append_own(folder / METRICS) as file:
        file.write(f"{json.dumps(row)}\n".encode())


def rewind_metrics(folder: Path, *, tokens: int) -> None:
    """Drop the lines after `tokens`: they are written again, the same, by the resumed branch."""
    path = folder / METRICS
    if path.is_file():
        lines = read_words(path).splitlines()
        kept = [line for line in lines if _tokens_of(line) is not None and (_tokens_of(line) or 0) <= tokens]
        write_atomic(path, "".join(f"{line}\n" for line in kept))


@dataclass(frozen=True, slots=True)
class _Logged:
    """What is needed of a line of metrics.jsonl."""

    tokens: int


def _tokens_of(line: str) -> int | None:
    try:
        return decode_json(line.encode(), _Logged, where=METRICS, cure="none", error=TrainError, nan=True).tokens
    except TrainError:
        return None  # a line that a kill cut short


def _states(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{STATE}*"), key=lambda path: int(path.name.removeprefix(STATE)))


@contextlib.contextmanager
def _whole(out: Path) -> Iterator[Path]:
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        sync_tree(unfinished)
        os.rename(unfinished, out)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise OutputError(f"cannot write {out}: {error.strerror or error}: free some space, then resume") from error
