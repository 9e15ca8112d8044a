"""What a study costs: time of each stage, reads of each checkpoint, bookkeeping, rerun of a finished study.

    python benchmarks/study.py OUT [--times 2] [--study study.yaml] [--preset quick] [--seeds 1]

Without a study or preset it runs a tiny one of half a minute, or with `--times N` the same with N times the tokens to
train on and to score (`--times 6`: not quite a minute). Reads are bytes that this process took from disk over the bytes
of the file, by whatever way: a pass, a hash, or the model that is built to be streamed into. Bookkeeping is what is
neither training, scoring, tuning, measuring, merging nor resampling: planning, hashing, records. Other work on the
machine slows all of it; the load is printed beside the figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from trajsoup.core.quantity import parse_tokens

TINY = Path(__file__).parents[1] / "tests" / "data" / "example-study" / "study.yaml"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--study", type=Path, default=TINY)
    parser.add_argument("--times", type=int, default=1, help="more tokens, in training and in scoring")
    parser.add_argument("--preset")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    if args.preset and args.times > 1:
        parser.error("--times is for a study file: a preset has its own length")
    from trajsoup.lm.cpu_isa import isa_environment
    from trajsoup.study.cache import cache_folder
    from trajsoup.study.file.presets import Preset, write_preset
    from trajsoup.study.file.study import load_study
    from trajsoup.study.run import run_study

    os.environ |= isa_environment(cache=cache_folder())
    read_bytes: Counter[str] = Counter()
    heavy: dict[str, float] = defaultdict(float)
    _count_reads(read_bytes)
    _time_work(heavy)
    if args.preset is None:
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / "study.yaml"
        _longer(args.study, path, times=args.times) if args.times > 1 else shutil.copy(args.study, path)
    else:
        path = write_preset(Preset(args.preset), args.out, seeds=args.seeds)
    setup = load_study(path)
    marks: list[tuple[str, float]] = []
    begin = time.perf_counter()
    ran = run_study(setup, on_stage=lambda stage, seed: marks.append((f"{stage} {seed}", time.perf_counter())))
    end = time.perf_counter()
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    for (name, at), (_, after) in zip(marks, [*marks[1:], ("", end)], strict=True):
        print(f"{name}: {after - at:.1f} s")
    total, work = end - begin, sum(heavy.values())
    print(f"total {total:.1f} s, of which {', '.join(f'{k} {v:.1f} s' for k, v in heavy.items())}")
    print(f"records made: {', '.join(ran.made)}")
    found = _reads(read_bytes, setup.output)
    print("figure | measured | target")
    print(f"reads of each checkpoint | {sum(found) / len(found):.2f} in the mean, {max(found):.2f} at most | 1")
    print(f"bookkeeping over total time | {max(total - work, 0) / total:.1%} ({total - work:.1f} s) | 3 %")
    command = [sys.executable, "-m", "trajsoup", "run", str(path), "--json"]
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took = time.perf_counter() - begin
    assert '"made": []' in done.stdout, "the rerun computed something"
    print(f"rerun of the finished study, a new process | {took:.2f} s, nothing recomputed | 2 s")


def _longer(study: Path, path: Path, *, times: int) -> None:
    """A copy of the study with so many times the tokens: as many checkpoints, rows and records, but more work for each."""
    fields = yaml.safe_load(study.read_text(encoding="utf-8"))
    evaluate = fields.get("evaluate", {})
    for group, names in ((fields, ("horizon", "checkpoint_every")), (evaluate, ("validation_tokens", "test_tokens"))):
        group |= {name: times * parse_tokens(group[name], where=name) for name in names if name in group}
    path.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")


def _reads(read_bytes: Counter[str], output: Path) -> list[float]:
    """How often each checkpoint of a branch was read, in whole files."""
    files = sorted(output.rglob("branches/*/checkpoint-*/*.safetensors"))
    return [read_bytes[str(file.resolve())] / file.stat().st_size for file in files]


def _count_reads(read_bytes: Counter[str]) -> None:
    """Every way by which weights are read."""
    import trajsoup.lm.live as live
    import trajsoup.store.known_digests as known_digests
    from trajsoup.store.resident import ResidentFiles
    from trajsoup.store.source import Source

    def whole(path: Any) -> None:
        read_bytes[str(Path(str(path)).resolve())] += Path(str(path)).stat().st_size

    load, pread, hashed = ResidentFiles.load, Source._pread, known_digests.digest_file

    def counted_load(self: ResidentFiles, path: Path) -> bytes:
        whole(path)
        return load(self, path)

    def counted_pread(self: Source, fd: int, view: memoryview, offset: int) -> int:
        got = pread(self, fd, view, offset)
        read_bytes[str(self.path.resolve())] += got
        return got

    def counted_hash(path: Any, algorithm: Any) -> str:
        whole(path)
        return hashed(path, algorithm)

    ResidentFiles.load, Source._pread, known_digests.digest_file = counted_load, counted_pread, counted_hash
    build = live.load_model

    def counted_build(checkpoint: Any, **options: Any) -> Any:
        for file in checkpoint.files:
            whole(file)
        return build(checkpoint, **options)

    live.load_model = counted_build


def _time_work(heavy: dict[str, float]) -> None:
    """Time what trains, scores, tunes, measures, merges or resamples."""
    import trajsoup.engine.gram as gram
    import trajsoup.lm.live as live
    import trajsoup.study.score.rows as score
    import trajsoup.study.stages.answer as answer
    import trajsoup.study.stages.connectivity as connectivity
    import trajsoup.study.stages.estimates as estimates
    import trajsoup.study.stages.fine_tuning as fine_tuning
    import trajsoup.study.stages.train as stages

    def timed(name: str, module: Any, function: str) -> None:
        inner: Callable[..., Any] = getattr(module, function)

        def run(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                heavy[name] += time.perf_counter() - begin

        setattr(module, function, run)

    timed("training", stages, "train_study")
    timed("blending", live, "blend")
    timed("scoring", score, "_run")
    timed("loading", score, "load_model")
    timed("fine-tuning", fine_tuning, "_run")
    timed("geometry", gram, "gram")
    timed("merging", answer, "make_soup")
    timed("bootstrap", estimates, "paired_bootstrap")
    timed("bootstrap", estimates, "compare_losses")
    timed("bootstrap", estimates, "compare_tasks")
    timed("bootstrap", connectivity, "compare_losses")


if __name__ == "__main__":
    main()
