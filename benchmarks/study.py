"""What a study costs: time of each stage, reads of each checkpoint, bookkeeping, rerun of a finished study.

    python benchmarks/study.py OUT [--preset quick] [--seeds 1]

Bookkeeping is what is neither training nor scoring: planning, hashing, records, tables. Other work on the machine slows
all of it; the load is printed beside the figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    from trajsoup.lm.cpu_isa import isa_environment
    from trajsoup.study.data import cache_folder
    from trajsoup.study.presets import Preset, write_preset
    from trajsoup.study.run import run_study
    from trajsoup.study.setup import load_setup

    os.environ |= isa_environment(cache=cache_folder())
    reads, heavy = Counter(), Counter()
    _watch(reads, heavy)
    setup = load_setup(write_preset(Preset(args.preset), args.out, seeds=args.seeds))
    marks: list[tuple[str, float]] = []
    begin = time.perf_counter()
    ran = run_study(setup, on_stage=lambda stage, seed: marks.append((f"{stage} {seed}", time.perf_counter())))
    end = time.perf_counter()
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    for (name, at), (_, after) in zip(marks, [*marks[1:], ("", end)], strict=True):
        print(f"{name}: {after - at:.1f} s")
    total = end - begin
    work = sum(heavy.values())
    print(f"total {total:.1f} s, of which {', '.join(f'{k} {v:.1f} s' for k, v in heavy.items())}")
    print(f"bookkeeping {max(total - work, 0):.1f} s, {max(total - work, 0) / total:.1%} of the total (target 3 %)")
    print(f"passes over the checkpoints for rows of several: {reads['blend']}; records made: {', '.join(ran.made)}")
    command = [sys.executable, "-m", "trajsoup", "run", str(args.out / "study.yaml"), "--json"]
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    print(f"rerun of the finished study, a new process: {time.perf_counter() - begin:.2f} s (target 2 s)")


def _watch(reads: Counter, heavy: Counter) -> None:
    """Count blends and time what trains, scores, tunes or merges."""
    import trajsoup.lm.live as live
    import trajsoup.study.answer as answer
    import trajsoup.study.reporting as reporting
    import trajsoup.study.stages as stages
    from trajsoup.study.scorer import Scorer

    blend = live.blend

    def counted(*args, **kwargs):
        reads["blend"] += 1
        return blend(*args, **kwargs)

    live.blend = counted

    def timed(name, function):
        def run(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                heavy[name] += time.perf_counter() - begin

        return run

    for method in ("validate", "test", "probe"):
        setattr(Scorer, method, timed("scoring", getattr(Scorer, method)))
    stages.train_study = timed("training", stages.train_study)
    answer.make_soup = timed("merging", answer.make_soup)
    reporting.paired_bootstrap = timed("bootstrap", reporting.paired_bootstrap)


if __name__ == "__main__":
    main()
