"""Measure scoring: validation against a bare forward pass, rows in memory against checkpoints on disk, the bootstrap.

python benchmarks/score.py [--tokens N] [--rows N] [--repeats N] [--hidden N]
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

from trajsoup.core.soup import Row
from trajsoup.core.statistics import Better, paired_bootstrap
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import FileSink
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.live import load_model, stream_rows
from trajsoup.lm.validate import ValidationSettings, batches, document_losses
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint

VOCAB = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--large-hidden", type=int, default=640)
    options = parser.parse_args()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_config(config(options.hidden)).eval()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {torch.get_num_threads()} threads, medians of {options.repeats} repeats\n")
    print("| figure | measured | target |\n|---|---|---|")
    validation(model, options.tokens, options.repeats)
    rows_in_memory(model, options.rows, options.tokens // 10)
    large = AutoModelForCausalLM.from_config(config(options.large_hidden)).eval()
    rows_in_memory(large, options.rows, options.tokens // 100)
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
        lengths.append(int(random.integers(90, 200)) if random.random() < 0.9 else int(random.integers(500, 12_000)))
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
        random = np.random.default_rng(0)
        weights = random.dirichlet(np.ones(len(checkpoints)), count)
        rows = [
            Row(name=f"row{i}", weights=dict(zip(checkpoints, map(float, w), strict=True)))
            for i, w in enumerate(weights)
        ]
        live = load_model(checkpoints["c0"])
        document_losses(live, tokens)
        before = disk_bytes(root)
        in_memory: list[float] = []

        def streamed() -> None:
            in_memory.extend(document_losses(live, tokens).loss() for _ in stream_rows(live, checkpoints, rows))

        fast = timed(streamed)
        written = disk_bytes(root) - before
        on_disk: list[float] = []
        slow = timed(lambda: on_disk.extend(through_disk(root / "out", checkpoints, row, tokens) for row in rows))
        alone = timed(lambda: [document_losses(live, tokens) for _ in rows])
        assert np.allclose(in_memory, on_disk, rtol=1e-6), "the two ways disagree"
        print(
            f"| {count} rows of W in one go over writing and scoring each, {layout_bytes(checkpoints) / 1e6:.0f} MB, "
            f"{tokens.n_tokens:,} tokens | {slow / fast:.1f}x faster ({fast:.2f} s against {slow:.2f} s; the passes "
            f"alone {alone:.2f} s; {written} bytes written) | >= 2x, no disk written |"
        )


def save(model: torch.nn.Module, folder: Path, *, count: int) -> dict[str, Checkpoint]:
    found = {}
    for i in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.01)
        model.save_pretrained(folder / str(i))
        found[f"c{i}"] = open_checkpoint(folder / str(i))
    return found


def through_disk(out: Path, checkpoints: dict[str, Checkpoint], row: Row, tokens: TokenSet) -> float:
    first = checkpoints["c0"]
    layout = make_layout(first)
    out.mkdir()
    with FileSink(out, layout) as sink:
        blend(checkpoints, [row], [sink], layout=layout)
        sink.finish()
    shutil.copy(first.folder / "config.json", out)
    loss = document_losses(load_model(open_checkpoint(out)), tokens).loss()
    shutil.rmtree(out)
    return loss


def bootstrap(repeats: int) -> None:
    difference = np.random.default_rng(0).normal(size=10_000)
    seconds = [timed(lambda: paired_bootstrap([difference], better=Better.LOWER)) for _ in range(repeats)]
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
