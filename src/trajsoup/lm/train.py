"""The builtin trainer: one branch from the fork point to its horizon, checkpoints at token positions.

    job -> model, optimizers, data order -> steps -> checkpoints (weights), one rolling state, metrics.jsonl

The loop is accelerate's: it places the model, starts and joins processes, casts, and logs to trackers. transformers'
Trainer counts steps and epochs, saves folders that can be seen half-written, and applies a NaN gradient before it can be
asked; here everything is counted in tokens, and the learning rate and the data are pure functions of them, so a killed
branch goes on bit for bit as if it had never been killed.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

import torch
from accelerate import Accelerator

from trajsoup.core.schedule import learning_rate
from trajsoup.errors import DivergedError, TrainError
from trajsoup.lm.branch_files import (
    append_metrics,
    load_state,
    require_like_fork_point,
    rewind_metrics,
    save_checkpoint,
    save_state,
)
from trajsoup.lm.data_order import DataOrder
from trajsoup.lm.job import BranchJob, Precision
from trajsoup.lm.mixture import MixedOrder, data_order
from trajsoup.lm.models import open_model
from trajsoup.lm.optimizers import make_optimizers, set_learning_rate
from trajsoup.lm.sharding import Placed, clip_gradients, place

LOGS_PER_CHECKPOINT = 10
STATE_SECONDS = 10  # of training that a killed branch may lose besides what follows its last checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a finished branch reports of this sitting."""

    tokens: int  # since the fork point
    trained_tokens: int  # in this sitting
    seconds: float
    cpu_seconds: float  # of this process: what a busy machine does not distort
    saving_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Training speed, saving included."""
        return self.trained_tokens / self.seconds if self.seconds else 0.0


def train_branch(job: BranchJob) -> Trained:
    """Train the branch to its horizon, resuming where it was killed. Checkpoints of an older sitting stay."""
    accelerator = accelerator_of(job)
    micro, passes = split_batch(job, processes=accelerator.num_processes)
    torch.manual_seed(job.recipe.seed)
    model = open_model(job.fork_point if job.restart is None else job.restart.weights)
    model.train()
    if job.only is not None:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.endswith(job.only))
    placed = place(model, accelerator=accelerator, sharding=job.sharding)
    restart = None if job.restart is None else {n: t.clone() for n, t in placed.model.state_dict().items()}
    parameters = [p for p in placed.model.parameters() if p.requires_grad]
    optimizers = make_optimizers(placed.model, recipe=job.recipe)
    order = data_order(job)
    first_step = job.checkpoint_every // job.step_tokens
    step, tokens = load_state(placed, optimizers, folder=job.folder, first_step=first_step, accelerator=accelerator)
    if job.restart is not None and restart is not None and tokens <= job.restart.tokens:
        _require_reached(job, tokens=tokens)
        placed.model.load_state_dict(restart)
    if accelerator.is_main_process:
        rewind_metrics(job.folder, tokens=tokens)
    warmup_tokens = job.recipe.warmup.length(job.horizon)
    log_every = job.log_every or max(job.checkpoint_every // job.step_tokens // LOGS_PER_CHECKPOINT, 1)
    started, cpu_started = time.perf_counter(), time.process_time()
    first_tokens, saving = tokens, 0.0
    state_at = started if tokens else None  # None: there is no state yet
    losses: list[float] = []
    logged_tokens, logged_at = tokens, started
    while tokens < job.end:
        loss = accumulate(placed, order, accelerator, first=tokens // job.sequence_length, micro=micro, passes=passes)
        norm = clip_gradients(parameters, clip=job.recipe.clip)
        _require_finite(job, loss=loss, norm=norm, tokens=tokens)
        step, tokens = step + 1, tokens + job.step_tokens
        rate = learning_rate(
            job.recipe.schedule,
            tokens=tokens,
            peak_lr=job.recipe.peak_lr,
            warmup_tokens=warmup_tokens,
            horizon=job.horizon,
        )
        set_learning_rate(optimizers, rate)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss)
        at_checkpoint = tokens % job.checkpoint_every == 0
        if at_checkpoint or step % log_every == 0:
            now = time.perf_counter()
            row = {
                "step": step,
                "tokens": tokens,
                "train_loss": math.fsum(losses) / len(losses),
                "grad_norm": norm,
                "learning_rate": rate,
                "tokens_per_second": round((tokens - logged_tokens) / (now - logged_at), 1),
            }
            if accelerator.is_main_process:
                append_metrics(job.folder, row)
            accelerator.log({name: value for name, value in row.items() if name != "step"}, step=step)
            losses, logged_tokens, logged_at = [], tokens, now
        if at_checkpoint:
            before = time.perf_counter()
            saved = save_checkpoint(
                placed,
                folder=job.folder,
                step=step,
                dtype=job.dtype,
                tokenizer=job.tokenizer,
                accelerator=accelerator,
            )
            if tokens == job.checkpoint_every:
                require_like_fork_point(saved, job.fork_point)
            if tokens == job.end or _state_is_due(accelerator, last=state_at, now=before):
                save_state(placed, optimizers, folder=job.folder, step=step, tokens=tokens, accelerator=accelerator)
                state_at = before
            logged_at = time.perf_counter()
            saving += logged_at - before
    if job.report_to:
        accelerator.end_training()
    return Trained(
        tokens=tokens,
        trained_tokens=tokens - first_tokens,
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu_started,
        saving_seconds=saving,
    )


def _state_is_due(accelerator: Accelerator, *, last: float | None, now: float) -> bool:
    """A state costs more than a checkpoint. Where checkpoints follow within seconds, training those again costs less.

    When a state is written changes no bit: what is trained again is the same. Processes must agree, so several always write.
    """
    return accelerator.num_processes > 1 or last is None or now - last >= STATE_SECONDS


def accelerator_of(job: BranchJob) -> Accelerator:
    """Where the branch trains, and with whom."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    accelerator = Accelerator(
        cpu=world > 1 and not torch.accelerator.is_available(),  # unasked, it takes each of several for the only one
        mixed_precision="bf16" if job.precision is Precision.BF16 else "no",
        log_with=list(job.report_to) or None,
        project_dir=job.folder,
    )
    if accelerator.num_processes != world:
        raise TrainError(
            f"branch {job.branch!r} was started as {world} processes, and {accelerator.num_processes} of them found each "
            "other: check the launcher"
        )
    if job.report_to:
        named = {
            "wandb": {"name": job.branch, "dir": str(job.folder)},
            "mlflow": {"run_name": job.branch},
            "trackio": {"name": job.branch},
        }
        accelerator.init_trackers("trajsoup", config=job.recipe.effective(), init_kwargs=named)
    return accelerator


def split_batch(job: BranchJob, *, processes: int) -> tuple[int, int]:
    """Sequences in one forward pass, and passes for one step, of each process."""
    batch = job.recipe.global_batch
    if batch % processes:
        raise TrainError(
            f"branch {job.branch!r}: a global_batch of {batch} does not divide over {processes} processes: use a multiple"
        )
    share = batch // processes
    micro = min(job.micro_batch or share, share)
    if share % micro:
        raise TrainError(
            f"branch {job.branch!r}: {share} sequences of each process do not divide into passes of micro_batch {micro}: "
            "use a micro_batch that divides it"
        )
    return micro, share // micro


def accumulate(
    placed: Placed, order: DataOrder | MixedOrder, accelerator: Accelerator, *, first: int, micro: int, passes: int
) -> float:
    """Add up the gradients of one step; return its loss, averaged over all its sequences and processes."""
    total = 0.0
    for i in range(passes):
        number = first + (i * accelerator.num_processes + accelerator.process_index) * micro
        ids = torch.from_numpy(order.batch(number, micro)).to(accelerator.device)
        with placed.collecting(last=i == passes - 1):
            with accelerator.autocast():
                loss = placed.forward(input_ids=ids, labels=ids).loss
            accelerator.backward(loss / passes)
        total += loss.item()
    if accelerator.num_processes == 1:
        return total / passes
    mine = torch.tensor(total / passes, device=accelerator.device)
    return accelerator.reduce(mine, reduction="mean").item()  # type: ignore[union-attr]


def _require_reached(job: BranchJob, *, tokens: int) -> None:
    assert job.restart is not None
    if tokens < job.restart.tokens:
        raise TrainError(
            f"branch {job.branch!r} should go on at {job.restart.tokens:,} tokens, and its last state is at {tokens:,}: move "
            f"{job.folder} away and train it again"
        )


def _require_finite(job: BranchJob, *, loss: float, norm: float, tokens: int) -> None:
    """Stop before a NaN reaches the weights."""
    if math.isfinite(loss) and math.isfinite(norm):
        return
    kept = tokens // job.checkpoint_every * job.checkpoint_every
    last = f"its checkpoint at {kept:,} tokens is kept" if kept else "it has no checkpoint yet"
    raise DivergedError(
        f"branch {job.branch!r} diverged after {tokens:,} tokens (loss {loss}, gradient norm {norm}); {last}: lower its "
        "peak_lr, lengthen its warmup, or drop the branch"
    )
