"""What the builtin trainer costs: against a bare PyTorch loop, two branches at once, saving, and two sharded processes.

    python benchmarks/train.py [--tokens 80000] [--repeats 3] [--only bare,jobs,saving,fsdp2,threads]

Each figure is the median of the repeats; the two sides take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

CACHE = Path(tempfile.gettempdir()) / "trajsoup-bench-cache"
LENGTH, BATCH = 128, 16


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="bare,jobs,saving,fsdp2")
    args = parser.parse_args()
    from trajsoup.lm.cpu_isa import isa_environment

    os.environ |= isa_environment(cache=CACHE)
    for name in args.only.split(","):
        {"bare": bare, "jobs": jobs, "saving": saving, "fsdp2": fsdp2, "threads": threads}[name](args)


def bare(args) -> None:
    """Tokens per second of the trainer over those of a loop with nothing but forward, backward, clip and step.

    By the clock, and by processor time: one thread each, so the second is not distorted by what else runs.
    """
    import torch

    torch.set_num_threads(1)
    for optimizer in ("muon", "adamw"):
        pairs = []
        for _ in range(args.repeats):
            with tempfile.TemporaryDirectory() as folder:
                job = make_job(Path(folder), optimizer=optimizer, steps=max(args.tokens // LENGTH // BATCH, 20))
                pairs.append((bare_loop(job), trainer(job)))
        for i, kind in enumerate(("by the clock", "by processor time")):
            loop, ours = (statistics.median(job.horizon / pair[side][i] for pair in pairs) for side in (0, 1))
            ratios = [pair[0][i] / pair[1][i] for pair in pairs]
            print(
                f"{optimizer} {kind}: bare loop {loop:,.0f} tokens/s, trainer {ours:,.0f} tokens/s, "
                f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), of the best of each "
                f"{min(p[0][i] for p in pairs) / min(p[1][i] for p in pairs):.3f} (target >= 0.9)"
            )


def bare_loop(job) -> tuple[float, float]:
    import torch

    from trajsoup.lm.models import open_model
    from trajsoup.lm.optimizers import make_optimizers

    model = open_model(job.fork_point)
    model.train()
    optimizers = make_optimizers(model, recipe=job.recipe)
    stream = torch.from_numpy(job.tokens.open().astype("int64"))
    steps = job.horizon // job.step_tokens
    starts = torch.randint(0, len(stream) - LENGTH, (steps, BATCH), generator=torch.Generator().manual_seed(0))
    begin = time.perf_counter(), time.process_time()
    for step in range(steps):
        ids = torch.stack([stream[s : s + LENGTH] for s in starts[step]])
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def trainer(job) -> tuple[float, float]:
    from trajsoup.lm.train import train_branch

    trained = train_branch(job)
    return trained.seconds, trained.cpu_seconds


def jobs(args) -> None:
    """Wall time of two branches one after the other over both at once: `trajsoup train --jobs 1` and `--jobs 2`.

    One after the other they may have one thread each, as the trainer decides for so small a model, or both cores. At once is
    compared with the faster of the two.
    """
    from trajsoup.core import threads as rule
    from trajsoup.study.file.study import load_training_study
    from trajsoup.study.train.branches import train_study

    as_decided = rule.PASS_FLOPS_PER_THREAD
    ways = {"one thread": (1, as_decided), "two threads": (1, 1.0), "at once": (2, as_decided)}
    seconds = {way: [] for way in ways}
    for _ in range(max(args.repeats // 2, 1)):
        for way, (count, rule.PASS_FLOPS_PER_THREAD) in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                study = load_training_study(write_study(Path(folder), tokens=args.tokens))
                prepare(study)
                begin = time.perf_counter()
                trained = train_study(study, jobs=count, cache=CACHE)
                seconds[way].append(time.perf_counter() - begin)
                assert not trained.failed, trained.failed
    rule.PASS_FLOPS_PER_THREAD = as_decided
    one, both, two = (statistics.median(seconds[way]) for way in ways)
    print(
        f"two branches of {args.tokens:,} tokens: one after the other {one:.1f} s with one thread, {both:.1f} s with two; "
        f"{two:.1f} s at once; {min(one, both) / two:.2f}x over the faster (target >= 1.6)"
    )


def threads(args) -> None:
    """Tokens per second with one and with two threads, by width: where the rule of core/threads.py should change over."""
    import torch

    from trajsoup.core.flops import model_cost
    from trajsoup.core.threads import threads_for
    from trajsoup.lm.train import train_branch

    for width in (64, 128, 256):
        speed = {}
        for count in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                torch.set_num_threads(count)
                job = make_job(Path(folder), optimizer="muon", steps=max(40 * 64 // width, 8), width=width)
                speed[count] = train_branch(job).tokens_per_second
        config = json.loads((job.fork_point / "config.json").read_text())
        flops = model_cost(config, sequence_length=LENGTH).flops_per_token * job.pass_tokens
        print(
            f"width {width}: {flops / 1e9:.1f} GFLOPs a pass, {speed[1]:,.0f} tokens/s with one thread, {speed[2]:,.0f} with "
            f"two, {speed[2] / speed[1]:.2f}x; the rule gives {threads_for(pass_flops=flops, share=2)}"
        )


def prepare(study) -> None:
    """Make corpus and fork point beforehand: they are cached and not what is measured."""
    from trajsoup.study.train.branches import train_study

    train_study(study, branches=[], cache=CACHE)


def saving(args) -> None:
    """Share of a branch's time that goes into checkpoints and states: at the presets' spacing, and at an extreme one."""
    import torch

    torch.set_num_threads(1)
    from trajsoup.lm.train import train_branch
    from trajsoup.study.file.presets import Preset, preset_study

    usual = preset_study(Preset.QUICK)["checkpoint_every"] // (LENGTH * BATCH)
    for apart, count, what in ((usual, 3, "as the presets have it"), (4, 12, "an extreme")):
        shares, each = [], []
        for _ in range(args.repeats):
            with tempfile.TemporaryDirectory() as folder:
                trained = train_branch(make_job(Path(folder), optimizer="muon", steps=count * apart, checkpoints=count))
                shares.append(trained.saving_seconds / trained.seconds)
                each.append(trained.saving_seconds / count)
        print(
            f"saving: {statistics.median(shares):.2%} of the time with {count} checkpoints {apart * LENGTH * BATCH:,} tokens "
            f"apart, {what} ({statistics.median(each) * 1000:.0f} ms each; target <= 3 %)"
        )


def fsdp2(args) -> None:
    """Largest relative difference of the loss curve of two FSDP2 processes from that of one."""
    import torch

    from trajsoup.lm.train import train_branch

    with tempfile.TemporaryDirectory() as folder:
        curves = {}
        for count in (1, 2):
            job = make_job(Path(folder) / str(count), optimizer="muon", steps=20, sharding="fsdp2").write()
            if count == 1:
                torch.set_num_threads(1)
                train_branch(job)
            else:
                torch.multiprocessing.spawn(
                    _one_of_two, args=(f"{folder}/rendezvous", str(job.folder / "branch.json")), nprocs=2
                )
            lines = (job.folder / "metrics.jsonl").read_text().splitlines()
            curves[count] = [json.loads(line)["train_loss"] for line in lines]
    worst = max(abs(a / b - 1) for a, b in zip(curves[1], curves[2], strict=True))
    print(
        f"fsdp2, 2 processes, muon, 20 steps: largest relative difference of the loss {worst:.1e} (target: float rounding)"
    )


def _one_of_two(rank: int, rendezvous: str, record: str) -> None:
    import torch

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {"ACCELERATE_USE_CPU": "true", "LOCAL_WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    from trajsoup.lm.job import read_job
    from trajsoup.lm.train import train_branch

    train_branch(read_job(Path(record)))
    torch.distributed.destroy_process_group()


def make_job(folder: Path, *, optimizer: str, steps: int, checkpoints: int = 1, sharding: str = "ddp", width: int = 64):
    """A branch of the embedded default model on the builtin corpus."""
    from trajsoup.core.recipe import Optimizer, Recipe
    from trajsoup.lm.corpus import CorpusSpec, load_corpus
    from trajsoup.lm.job import BranchJob, Sharding, fork_point_digest, token_file
    from trajsoup.lm.models import embedded_config, new_model

    corpus = load_corpus(CorpusSpec(pretrain_bytes=2_000_000), cache=CACHE)
    fork_point = CACHE / f"bench-fork-{corpus.vocab_size}-{width}"
    if not fork_point.is_dir():
        changes = {"hidden_size": width, "intermediate_size": 3 * width, "moe_intermediate_size": width // 2}
        config = embedded_config(vocab_size=corpus.vocab_size, end_of_text=0, sequence_length=LENGTH, changes=changes)
        new_model(config, seed=0).save_pretrained(fork_point)
    (folder / "branch").mkdir(parents=True)
    step = LENGTH * BATCH
    return BranchJob(
        branch="bench",
        folder=folder / "branch",
        fork_point=fork_point,
        fork_point_digest=fork_point_digest(fork_point),
        tokens=token_file(corpus.train.tokens, digest=corpus.train.digest, spare=folder / "tokens"),
        recipe=Recipe(optimizer=Optimizer(optimizer), peak_lr=1e-3, global_batch=BATCH, momentum=0.9),
        horizon=steps * step,
        checkpoint_every=steps // checkpoints * step,
        sequence_length=LENGTH,
        sharding=Sharding(sharding),
    )


def write_study(folder: Path, *, tokens: int) -> Path:
    every = max(tokens // LENGTH // BATCH // 4, 1) * LENGTH * BATCH
    path = folder / "study.yaml"
    path.write_text(
        f"pretrain: {{tokens: 32768}}\ncorpus: {{pretrain_bytes: 2000000}}\nsequence_length: {LENGTH}\nhorizon: {4 * every}\n"
        f"checkpoint_every: {every}\nbaseline: {{peak_lr: 1e-3, global_batch: {BATCH}, momentum: 0.9}}\n"
        "branches: {EXP1: {}, EXP2: {seed: 1001}}\n"
    )
    return path


if __name__ == "__main__":
    main()
