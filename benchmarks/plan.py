"""What `plan` predicts of a study against what its run takes: processor time of training and of everything else.

    python benchmarks/plan.py OUT [--study study.yaml]

Without a study it plans and runs a tiny one on the embedded fork point. Rates are measured anew, in a cache of OUT's own.
Processor time is compared, since other work on the machine lengthens the clock's. Starting Python is in neither; the
server of branches imports torch once, which is counted as training. Tokenising, bootstraps, geometry and merging are in what
was used and not in what was predicted: they are the same seconds in a study of hours. Exits with 1 if the sums differ by more
than 30 %.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path

LIMIT = 0.3
TINY = """\
fork_point: builtin
corpus: builtin
sequence_length: 128
horizon: 131072
checkpoint_every: 16384
baseline: {optimizer: muon, peak_lr: 2e-3, global_batch: 16}
branches:
  EXP1: {}
  EXP2: {seed: 1001}
  EXP3: {peak_lr: 1.4e-3, global_batch: 8}
evaluate: {validation_tokens: 8k, test_tokens: 12k, probe_tokens: 8k, items: 20, ks: [1, 2, 4], horizons: 4, resamples: 200}
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--study", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    os.environ["TRAJSOUP_CACHE"] = str(args.out / "cache")
    if args.study is None:
        path = args.out / "study.yaml"
        path.write_text(TINY, encoding="utf-8")
    else:
        path = Path(shutil.copy(args.study, args.study.with_name(f"{args.out.name}-study.yaml")))
    from trajsoup.lm.cpu_isa import isa_environment
    from trajsoup.study.cache import cache_folder
    from trajsoup.study.duration import predict
    from trajsoup.study.file.study import load_training_study
    from trajsoup.study.passes import count_passes
    from trajsoup.study.run import run_study
    from trajsoup.study.train import forked
    from trajsoup.study.train.data import load_data
    from trajsoup.study.train.plan import on_corpus, plan_study

    (args.out / "cache").mkdir()
    os.environ |= isa_environment(cache=cache_folder())
    study = load_training_study(path)
    corpus = load_data(study, cache=cache_folder())
    assert corpus is not None, "a study that trains has documents"
    plan = on_corpus(plan_study(study), corpus)
    found = predict(plan, corpus, count_passes(plan), cache=cache_folder())
    marks: list[tuple[str, float]] = []

    def mark(stage: str, seed: object) -> None:
        if forked._server is not None:  # its branches are counted when it has ended
            forked._server.close()
        marks.append((stage, _processor_seconds()))

    run_study(study, on_stage=mark)
    mark("", None)
    used = {name: 0.0 for name, _ in marks[:-1]}
    for (stage, at), (_, after) in pairwise(marks):
        used[stage] += after - at
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    print("stages: " + ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in used.items() if seconds > 0.05))
    training = found.parts.get("pretraining", 0.0) + found.parts["training"]
    rows = {
        "training": (training, used["train"]),
        "scoring, and all else": (found.parts["scoring"], sum(used.values()) - used["train"]),
        "all": (sum(found.parts.values()), sum(used.values())),
    }
    print("processor time of | predicted | used | used over predicted")
    for name, (predicted, seconds) in rows.items():
        print(f"{name} | {predicted:.1f} s | {seconds:.1f} s | {seconds / predicted:.2f}")
    predicted, seconds = rows["all"]
    sys.exit(int(abs(seconds - predicted) > LIMIT * max(seconds, predicted)))


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
