"""Gram of many checkpoints, side by side with a plain read of the same bytes and with what people do instead.

    python benchmarks/gram.py --count 60 --megabytes 230 --data DIR

Every figure is measured in a process of its own, so that peak memory is that of one method; imports and compiled code
are loaded before the clock starts. Memory is anonymous memory, sampled while the process runs: pages of files that the
kernel may drop at any time count for nobody. The peers stack all checkpoints in memory, several times over, so they get
smaller ones (and gram the same) and a limit on their memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from checkpoints import make_checkpoints
from machine import watching_memory
from trajsoup.core.geometry import cosines, distances
from trajsoup.core.tensor_groups import tensor_groups
from trajsoup.engine.gram import gram
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.formats.safetensors import build_header, read_header

READ_BYTES = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="checkpoints")
    parser.add_argument("--megabytes", type=int, default=230, help="of one checkpoint, about")
    parser.add_argument(
        "--vocab", type=int, default=16000, help="of the made-up model; smaller makes smaller checkpoints"
    )
    parser.add_argument("--data", type=Path, default=Path("benchmarks/.data"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-count", type=int, default=24, help="checkpoints for the peers; 0 leaves them out")
    parser.add_argument("--peer-megabytes", type=int, default=32, help="of one of their checkpoints")
    parser.add_argument("--peer-gigabytes", type=float, default=16, help="memory that a peer may take")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    paths = make_checkpoints(args.data, count=args.count, checkpoint_bytes=args.megabytes * 10**6, vocab=args.vocab)
    total = sum(open_checkpoint(path).nbytes for path in paths)
    print(f"{len(paths)} checkpoints, {total / 1e9:.2f} GB of bf16, {args.repeats} repeats, medians\n")
    measured(read, paths)  # warm the page cache

    runs = [(measured(read, paths), measured(run_gram, paths)) for _ in range(args.repeats)]  # in turn: noise hits both
    reads, grams = [r for r, _ in runs], [g for _, g in runs]
    read_rate, gram_rate = total / median(reads) / 1e9, total / median(grams) / 1e9
    figures: dict[str, object] = {
        "checkpoints": len(paths),
        "bytes": total,
        "read_gb_per_s": read_rate,
        "gram_gb_per_s": gram_rate,
        "ratio_to_read": gram_rate / read_rate,
        "gram_peak_mib": max(m["peak_mib"] for m in grams),
    }
    line("single-stream buffered read", f"{read_rate:.2f} GB/s")
    line("gram, with tensor groups", f"{gram_rate:.2f} GB/s", f"{gram_rate / read_rate:.2f} of the read (target 0.3)")
    line("  peak anonymous memory", f"{figures['gram_peak_mib']:.0f} MiB", "(target 400)")

    if args.peer_count:
        few = small_checkpoints(args.data, count=args.peer_count, megabytes=args.peer_megabytes)
        figures |= against_peers(few, repeats=args.repeats, limit=int(args.peer_gigabytes * 2**30))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def against_peers(few: Sequence[Path], *, repeats: int, limit: int) -> dict[str, object]:
    print(f"\non {len(few)} checkpoints of {few[0].stat().st_size / 1e6:.0f} MB:")
    ours = [measured(run_gram, few) for _ in range(repeats)]
    seconds, peak = median(ours), max(m["peak_mib"] for m in ours)
    line("gram", f"{seconds:.2f} s", f"{peak:.0f} MiB")
    found: dict[str, object] = {"peer_checkpoints": len(few), "gram_few_seconds": seconds, "gram_few_peak_mib": peak}
    for name, peer in (("numpy stack + SVD", stack_and_svd), ("scikit-learn PCA", sklearn_pca)):
        theirs = measured(peer, few, limit=limit)
        if "error" in theirs:
            line(name, "failed", theirs["error"])
            continue
        faster, less = theirs["seconds"] / seconds, theirs["peak_mib"] / peak
        line(name, f"{theirs['seconds']:.2f} s", f"{theirs['peak_mib']:.0f} MiB")
        line("  gram is", f"{faster:.1f}x faster", f"with 1/{less:.1f} of the memory (targets 30x, 1/30)")
        found[name] = {"seconds": theirs["seconds"], "peak_mib": theirs["peak_mib"], "faster": faster, "less": less}
    exact = measured(exact_products, few)["result"]
    inner = np.array(ours[0]["result"])
    away = ~np.eye(len(few), dtype=bool)
    distance = worst(lengths(inner), lengths(np.array(exact)), away)
    cosine = float(np.nanmax(np.abs(angles(inner) - angles(np.array(exact)))))
    line("distances against exact fp64", f"{distance:.1e}", "largest relative error (target 1e-6)")
    line("cosines against exact fp64", f"{cosine:.1e}", "largest error")
    return found | {"distance_error": distance, "cosine_error": cosine}


def small_checkpoints(root: Path, *, count: int, megabytes: int) -> list[Path]:
    """Single-tensor checkpoints around one fork point, each 5 % away from it."""
    folder = root / f"gram-{count}x{megabytes}MB"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"checkpoint-{i}.safetensors" for i in range(count)]
    lead, header = build_header([("model.layers.0.mlp.weight", "BF16", (megabytes * 500, 1000))], metadata={})
    base = np.random.default_rng(0).standard_normal(megabytes * 500_000, np.float32) * 0.02
    for i, path in enumerate(paths):
        if not path.exists() or path.stat().st_size != header.file_bytes:
            step = np.random.default_rng(i + 1).standard_normal(len(base), np.float32) * 0.001
            path.write_bytes(lead + ((base + step).view(np.uint32) >> 16).astype(np.uint16).tobytes())
    return paths


def read(paths: Sequence[Path]) -> None:
    buffer = bytearray(READ_BYTES)
    for path in paths:
        for file in open_checkpoint(path).files:
            with file.open("rb", buffering=0) as stream:
                while stream.readinto(buffer):
                    pass


def run_gram(paths: Sequence[Path]) -> list[list[float]]:
    checkpoints = {str(path): open_checkpoint(path) for path in paths}
    found = gram(checkpoints, centre=str(paths[0]), groups=tensor_groups)
    distances(found), cosines(found)
    return found.whole.inner.tolist()


def stacked(paths: Sequence[Path]) -> np.ndarray:
    """Every checkpoint as a row of fp32, the way one does it by hand."""
    rows = []
    for path in paths:
        checkpoint = open_checkpoint(path)
        parts = []
        for file in checkpoint.files:
            bits = np.fromfile(file, np.uint16, offset=read_header(file).data_offset)
            parts.append((bits.astype(np.uint32) << 16).view(np.float32))
        rows.append(np.concatenate(parts))
    return np.stack(rows)


def stack_and_svd(paths: Sequence[Path]) -> None:
    x = stacked(paths)
    x -= x[0].copy()
    np.linalg.svd(x[1:], full_matrices=False)


def sklearn_pca(paths: Sequence[Path]) -> None:
    from sklearn.decomposition import PCA

    PCA(n_components=2).fit_transform(stacked(paths))


def exact_products(paths: Sequence[Path]) -> list[list[float]]:
    """The same products wholly in fp64, one slice of columns at a time."""
    total = np.zeros((len(paths), len(paths)))
    opened = [open_checkpoint(path) for path in paths]
    for i, header in enumerate(map(read_header, opened[0].files)):
        items = (header.file_bytes - header.data_offset) // 2
        for start in range(0, items, 1 << 20):
            count = min(1 << 20, items - start)
            rows = []
            for checkpoint in opened:
                offset = read_header(checkpoint.files[i]).data_offset + 2 * start
                bits = np.fromfile(checkpoint.files[i], np.uint16, count=count, offset=offset)
                rows.append((bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64))
            x = np.array(rows)
            x -= x[0].copy()
            total += x @ x.T
    return total.tolist()


def lengths(inner: np.ndarray) -> np.ndarray:
    square = np.diag(inner)
    return np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * inner, 0))


def angles(inner: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.diag(inner))
    with np.errstate(invalid="ignore"):
        return inner / np.outer(size, size)


def worst(found: np.ndarray, exact: np.ndarray, where: np.ndarray) -> float:
    return float(np.max(np.abs(found[where] / exact[where] - 1)))


def measured(work: Callable[[Sequence[Path]], object], paths: Sequence[Path], *, limit: int | None = None) -> dict:
    """Run in a new process; its time without start-up, its peak memory, and what it returns."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(there, work, list(paths), limit))
    process.start()
    there.close()
    try:
        with watching_memory(process) as peak:
            found = here.recv()
        return found | {"peak_mib": peak[0] / 2**20}
    except EOFError:
        process.join()
        return {"error": f"the process ended with code {process.exitcode}: out of memory?"}
    finally:
        process.join()


def _measure(pipe, work, paths, limit) -> None:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    WARM_UP.get(work, lambda paths: None)(paths)
    start = time.perf_counter()
    try:
        result = work(paths)
    except MemoryError:
        pipe.send({"error": f"needs more than {limit / 2**30:.0f} GiB"})
        return
    seconds = time.perf_counter() - start
    pipe.send({"seconds": seconds, "result": result})


def _warm_gram(paths) -> None:
    run_gram(paths[:1])


def _warm_sklearn(paths) -> None:
    import sklearn.decomposition  # noqa: F401


WARM_UP = {run_gram: _warm_gram, sklearn_pca: _warm_sklearn}


def median(runs: Sequence[dict]) -> float:
    return statistics.median(run["seconds"] for run in runs)


def line(name: str, value: str, note: str = "") -> None:
    print(f"{name:32} {value:>14}   {note}")


if __name__ == "__main__":
    main()
