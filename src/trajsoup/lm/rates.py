"""How fast this machine trains and scores a model: a few real passes of it, a second or two each.

    job -> some passes, a step of the optimizer, a checkpoint -> TrainingRate
    checkpoint, documents, suite -> some passes -> ScoringRate

On a CPU in seconds of processor time, which other work on the machine does not lengthen; with an accelerator by the clock.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajsoup.core.soup import Row
from trajsoup.lm.job import BranchJob
from trajsoup.lm.probe import probe_of
from trajsoup.store.checkpoint import Checkpoint

if TYPE_CHECKING:
    from trajsoup.lm.corpus import TokenSet
    from trajsoup.lm.tasks.prepared import PreparedSuite
    from trajsoup.lm.validate import ValidationSettings

SECONDS = 1.0  # of each measurement, unless a single pass takes longer
FEW_TOKENS, SCORED_TOKENS = 512, 16_384  # of the first look, and of two whole batches


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRate:
    """Of one branch."""

    token_seconds: float  # forward and backward
    step_seconds: float  # gradients clipped, weights changed
    save_seconds: float  # one checkpoint, as far as it does not wait for the disk

    def seconds(self, job: BranchJob) -> float:
        """Of a whole branch. States to resume are left out: they follow each other by ten seconds or more."""
        steps, saved = job.horizon / job.step_tokens, job.horizon / job.checkpoint_every
        return job.horizon * self.token_seconds + steps * self.step_seconds + saved * self.save_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRate:
    """Of one model."""

    token_seconds: float  # of a document
    suite_seconds: float  # the suite that was given, whole; 0: none
    ingredient_seconds: float  # one checkpoint more in a row of W
    on_cpu: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProbe:
    """A job to measure, for a process of its own."""

    job: BranchJob
    environment: Mapping[str, str]  # that torch needs before it is loaded


def training_rate(probe: TrainingProbe) -> TrainingRate:
    """Measure a branch without training it: what it saves goes into a temporary folder."""
    os.environ.update(probe.environment)
    import torch
    from transformers.utils import logging

    from trajsoup.lm.branch_files import save_checkpoint
    from trajsoup.lm.mixture import data_order
    from trajsoup.lm.models import open_model
    from trajsoup.lm.optimizers import make_optimizers
    from trajsoup.lm.sharding import clip_gradients, place
    from trajsoup.lm.train import accelerator_of, accumulate, split_batch

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    job = dataclasses.replace(probe.job, report_to=())
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    accelerator = accelerator_of(job)
    placed = place(open_model(job.fork_point), accelerator=accelerator, sharding=job.sharding)
    placed.model.train()
    parameters = [p for p in placed.model.parameters() if p.requires_grad]
    optimizers = make_optimizers(placed.model, recipe=job.recipe)
    order = data_order(job)

    def learn(sequences: int) -> None:
        accumulate(placed, order, accelerator, first=0, micro=sequences, passes=1)

    def step() -> None:
        clip_gradients(parameters, clip=job.recipe.clip)
        for optimizer in optimizers:
            optimizer.step()

    timed = _timed(accelerator.device.type)
    learn(1)  # the first of anything is slower
    most, _ = split_batch(job, processes=1)
    sequences = max(min(most, math.floor(SECONDS / timed(lambda: learn(1)))), 1)
    passes = timed(lambda: learn(sequences), least=SECONDS)
    step()
    steps = timed(step, least=SECONDS / 2)
    with tempfile.TemporaryDirectory(dir=job.folder.parent if job.folder.parent.is_dir() else None) as folder:
        out = Path(folder)

        def save() -> None:
            save_checkpoint(
                placed, folder=out, step=1, dtype=job.dtype, tokenizer=job.tokenizer, accelerator=accelerator
            )

        saving = timed(save)
    return TrainingRate(
        token_seconds=passes / (sequences * job.sequence_length), step_seconds=steps, save_seconds=saving
    )


def scoring_rate(
    model: Any,
    checkpoint: Checkpoint,
    *,
    documents: TokenSet,
    settings: ValidationSettings,
    suite: PreparedSuite | None,
) -> ScoringRate:
    """Measure scoring with a live model that this checkpoint can be streamed into."""
    import torch

    from trajsoup.lm.live import stream_rows
    from trajsoup.lm.tasks.scoring import score_suite
    from trajsoup.lm.validate import document_losses

    timed = _timed(next(model.parameters()).device.type)

    def score(tokens: TokenSet) -> float:
        return timed(lambda: document_losses(model, tokens, settings=settings)) / tokens.n_tokens

    few = probe_of(documents, max_tokens=FEW_TOKENS)
    score(few)  # the first of anything is slower
    sample = probe_of(documents, max_tokens=max(min(SCORED_TOKENS, math.floor(SECONDS / score(few))), FEW_TOKENS))

    def become() -> None:
        for _ in stream_rows(model, {"probe": checkpoint}, [Row(name="probe", weights={"probe": 1.0})]):
            pass

    become()
    if suite is not None:
        score_suite(model, suite)
    return ScoringRate(
        token_seconds=score(sample),
        suite_seconds=0.0 if suite is None else timed(lambda: score_suite(model, suite)),
        ingredient_seconds=timed(become, least=SECONDS / 4),
        on_cpu=not torch.accelerator.is_available(),
    )


def _timed(device: str) -> Callable[..., float]:
    """A function that says how long something takes: the mean of as many times as fill `least` seconds."""
    import torch

    def clock() -> float:
        if device == "cpu":
            return time.process_time()
        torch.accelerator.synchronize()
        return time.perf_counter()

    def timed(run: Callable[[], object], *, least: float = 0.0) -> float:
        times, start = 0, clock()
        while times == 0 or clock() - start < least:
            run()
            times += 1
        return max((clock() - start) / times, 1e-9)

    return timed
