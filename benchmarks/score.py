"""Measure scoring: validation against a bare forward pass, rows in memory against checkpoints on disk, the bootstrap.

The other way to score a row is `trajsoup merge --no-hash` and a load of the folder: each row reads its own ingredients
and writes and syncs its own checkpoint, all in this one process. How much faster memory is depends on how long the
passes take, which both ways share: so the ratio to the passes alone stands beside it, for models of three sizes: on as
many tokens as a small validation set has (20,000; presets have 28,000 and more), and on very few, where it is hardest.

python benchmarks/score.py [--tokens N] [--rows N] [--repeats N] [--hidden N] [--few]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig
from transformers.utils import logging

from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.core.statistics import paired_bootstrap
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.live import load_model, stream_rows
from trajsoup.lm.validate import ValidationSettings, batches, document_losses
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import plan_row
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint

VOCAB = 1024
FEW_TOKENS = 300
ROUNDS = 3  # of rows in memory and their passes alone, in turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--large-hidden", type=int, default=512)
    parser.add_argument("--huge-hidden", type=int, default=1280)
    parser.add_argument("--huge-rows", type=int, default=6)
    parser.add_argument("--few", action="store_true", help="only rows on few tokens")
    options = parser.parse_args()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_config(config(options.hidden)).eval()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {torch.get_num_threads()} threads, medians of {options.repeats} repeats\n")
    print("| figure | measured | target |\n|---|---|---|")
    validation(model, options.tokens, options.repeats)
    sizes = (
        (options.hidden, options.rows),
        (options.large_hidden, options.rows),
        (options.huge_hidden, options.huge_rows),
    )
    for hidden, rows in sizes:
        model = AutoModelForCausalLM.from_config(config(hidden)).eval()
        rows_in_memory(model, rows, FEW_TOKENS)
        if not options.few:
            rows_in_memory(model, max(rows // 3, 3), options.tokens // 10)
    bootstrap(options.repeats)


def config(hidden: int) -> Qwen3MoeConfig:
    return Qwen3MoeConfig(
        vocab_size=VOCAB, hidden_size=hidden, intermediate_size=2 * hidden, moe_intermediate_size=hidden // 2,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=hidden // 4, num_experts=8,
        num_experts_per_tok=2, mlp_only_layers=[0], max_position_embeddings=512, tie_word_embeddings=True,
    )  # fmt: skip


def documents(n_tokens: int) -> TokenSet:
    """Lengths as in the embedded corpus: many short task documents, some long sources."""
    random = np.random.default_rng(0)
    lengths: list[int] = []
    while sum(lengths) < n_tokens:
        length = int(random.integers(90, 200)) if random.random() < 0.9 else int(random.integers(500, 12_000))
        lengths.append(max(min(length, n_tokens - sum(lengths)), 2))
    tokens = random.integers(1, VOCAB, sum(lengths)).astype(np.uint16)
    starts = np.cumsum([0, *lengths])
    tokens[starts[1:] - 1] = 0
    return TokenSet(tokens=tokens, starts=starts, digest="-")


def validation(model: torch.nn.Module, n_tokens: int, repeats: int) -> None:
    """Tokens per second of the whole validation over those of its forward passes alone, taken in turn."""
    tokens, settings = documents(n_tokens), ValidationSettings()
    passes = [torch.from_numpy(b.inputs) for b in batches(tokens, count=tokens.n_documents, settings=settings)]
    padding = sum(p.numel() for p in passes) / tokens.n_tokens - 1

    def bare() -> None:
        with torch.inference_mode():
            for ids in passes:
                model(input_ids=ids, use_cache=False)

    bare()
    ours, theirs = [], []
    for _ in range(repeats):
        theirs.append(timed(bare))
        ours.append(timed(lambda: document_losses(model, tokens, settings=settings)))
    rate = tokens.n_tokens / statistics.median(ours)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    print(
        f"| validation tokens/s over a bare batched forward pass | {ratio:.2f} ({rate:,.0f} tokens/s, "
        f"{padding:.1%} padding) | >= 0.9 |"
    )


def rows_in_memory(model: torch.nn.Module, count: int, n_tokens: int) -> None:
    """Score rows streamed into a live model, and score the same rows written to disk and loaded."""
    tokens = documents(n_tokens)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        checkpoints = save(model, root / "in", count=12)
        rows = [mean_of(list(checkpoints), size=1 + i % len(checkpoints), seed=i) for i in range(count)]
        live = load_model(next(iter(checkpoints.values())))
        document_losses(live, tokens)
        list(stream_rows(live, checkpoints, rows[:1]))  # compiles the kernels, which both ways use
        through_disk(root / "first", rows[0], tokens)
        before = disk_bytes(root)
        in_memory: list[float] = []

        def streamed() -> None:
            in_memory.extend(document_losses(live, tokens).loss() for _ in stream_rows(live, checkpoints, rows))

        def passes() -> None:
            for _ in rows:
                document_losses(live, tokens)

        pairs = [(timed(streamed), timed(passes)) for _ in range(ROUNDS)]
        in_memory = in_memory[-len(rows) :]
        fast, alone = (statistics.median(column) for column in zip(*pairs, strict=True))
        over = statistics.median(stream / bare for stream, bare in pairs)
        written = disk_bytes(root) - before
        on_disk: list[float] = []
        slow = 0.0
        for row in rows:
            slow += timed(lambda row=row: on_disk.append(through_disk(root / "out", row, tokens)))
            shutil.rmtree(root / "out")
        assert np.allclose(in_memory, on_disk, rtol=1e-6), "the two ways disagree"
        what = f"{layout_bytes(checkpoints) / 1e6:.0f} MB, {tokens.n_tokens:,} tokens"
        print(
            f"| {count} rows of W in one go over writing and scoring each, {what} | {slow / fast:.1f}x faster "
            f"({fast:.2f} s against {slow:.2f} s; {written} bytes written) | >= 2x, no disk written |\n"
            f"| the same over its passes alone, {what} | {over:.2f} ({fast:.2f} s over {alone:.2f} s) | <= 1.05 |",
            flush=True,
        )


def mean_of(keys: list[str], *, size: int, seed: int) -> Row:
    """A plain mean of some checkpoints, as most rows of a sweep are."""
    chosen = np.random.default_rng(seed).choice(keys, size, replace=False)
    return Row(name=f"row{seed}", weights={str(key): 1 / size for key in chosen})


def save(model: torch.nn.Module, folder: Path, *, count: int) -> dict[str, Checkpoint]:
    found = {}
    for i in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.01)
        model.save_pretrained(folder / str(i))
        found[str(folder / str(i))] = open_checkpoint(folder / str(i))
    return found


def through_disk(out: Path, row: Row, tokens: TokenSet) -> float:
    make_soup(plan_row(row), out, digest=None)
    return document_losses(load_model(open_checkpoint(out)), tokens).loss()


def bootstrap(repeats: int) -> None:
    difference = np.random.default_rng(0).normal(size=10_000)
    seconds = [timed(lambda: paired_bootstrap([difference], signal=Signal.LOSS)) for _ in range(repeats)]
    print(
        f"| 10,000 resamples of a paired difference over 10,000 items | {statistics.median(seconds):.2f} s | <= 1 s |"
    )


def layout_bytes(checkpoints: dict[str, Checkpoint]) -> int:
    return next(iter(checkpoints.values())).nbytes


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
