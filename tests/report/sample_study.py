"""A study as its records: the real stages, run on a scorer that knows the loss of any row in a quadratic bowl.

Shape -> Bowl -> plan, train (made up) -> validation, screen, rows, ... theory (the study's own stages)
              \\-> geometry, answer (made up: they would read and write weights)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.report.bowl import FLOOR, B, Bowl, Shape
from tests.report.sample_geometry import geometry_record
from trajsoup.core.budget import Setting
from trajsoup.core.scores import TestScores, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.study.file.evaluation import EvaluationPlan
from trajsoup.study.file.primary import REGISTERED
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.comparisons import ComparisonsRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import BranchPlan, PlanRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.train import TrainedBranch, TrainedCheckpoint, TrainRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.stages.comparisons import LIMITED, SINGLE, comparisons_stage
from trajsoup.study.stages.conditions import conditions_stage
from trajsoup.study.stages.evaluations import evaluations_stage
from trajsoup.study.stages.frontier import frontier_stage
from trajsoup.study.stages.rows import rows_stage
from trajsoup.study.stages.screen import screen_stage
from trajsoup.study.stages.sweeps import sweeps_stage
from trajsoup.study.stages.theory import theory_stage
from trajsoup.study.stages.validation import validation_stage
from trajsoup.study.stages.words import sentences
from trajsoup.study.sweeps.table import SWEEPS as KINDS
from trajsoup.study.sweeps.table import Sweep
from trajsoup.study.workbench import Workbench

STAGES = ("plan", "train", "validation", "screen", "rows", "evaluations", "comparisons", "sweeps", "geometry", "answer")
SWEEPS = tuple(Sweep(name=name, kind=name) for name, kind in KINDS.items() if kind.default)
CHECKPOINT_BYTES = 16 * B
RECIPES = (
    ("seed", "4321"),
    ("peak_lr", "0.000678"),
    ("global_batch", "128"),
    ("schedule", "constant"),
    ("optimizer", "adamw"),
    ("weight_decay", "0.05"),
)


class BowlScorer:
    """What the stages ask of a scorer."""

    corpus = SimpleNamespace(validation=SimpleNamespace(n_documents=2000))

    def __init__(self, bowl: Bowl) -> None:
        self.bowl = bowl

    def validate(self, rows, *, what="", tasks=True):
        return {row.name: self.bowl.scores(ValidationScores, dict(row.weights), seed=1) for row in rows}

    @property
    def for_sweeps(self):
        return self

    def test(self, rows):
        return {row.name: self.bowl.scores(TestScores, dict(row.weights), seed=2) for row in rows}

    def probe(self, rows, *, max_tokens, source=None):
        return {row.name: self.bowl.scores(ValidationScores, dict(row.weights), seed=3) for row in rows}


class SampleBench(Workbench):
    """A workbench without files."""

    def __init__(self, folder: Path, bowl: Bowl) -> None:
        shape = bowl.shape
        evaluation = EvaluationPlan(ks=(1, 2, 3, 4, 6, 8, 12), horizons=6, tolerance=0.05, resamples=300)
        setup = SimpleNamespace(
            output=folder,
            evaluation=evaluation,
            seed=0,
            sweeps=SWEEPS,
            foreign=None,
            study=None,
            primary=REGISTERED,
            corpus=None,
        )
        super().__init__(
            setup, cache=folder, progress=lambda what, done, total: None, records=Records(folder, held=True)
        )
        self.__dict__["scorer"] = BowlScorer(bowl)
        self.__dict__["checkpoints"] = {
            key: SimpleNamespace(nbytes=CHECKPOINT_BYTES) for branch in shape.branches for key in bowl.keys[branch]
        }


def write_study(folder: Path, shape: Shape | None = None) -> Path:
    """Write the records (and metrics) of a study into `folder`; return it."""
    shape = shape or Shape()
    bowl = Bowl(shape)
    bench = SampleBench(folder, bowl)
    make = {
        "plan": lambda: bench.records.write(plan_record(shape)),
        "train": lambda: bench.records.write(train_record(bowl)),
        "validation": lambda: validation_stage(bench),
        "screen": lambda: screen_stage(bench),
        "rows": lambda: rows_stage(bench),
        "evaluations": lambda: evaluations_stage(bench),
        "comparisons": lambda: comparisons_stage(bench),
        "sweeps": lambda: (sweeps_stage(bench), frontier_stage(bench), theory_stage(bench)),
        "geometry": lambda: (bench.records.write(geometry_record(bowl, bench)), conditions_stage(bench)),
        "answer": lambda: write_answer(bench.records),
    }
    for stage in STAGES[: STAGES.index(shape.until) + 1]:
        make[stage]()
    for branch in shape.branches:
        write_metrics(folder, branch, bowl, points=shape.logged, done=0.35 if branch == shape.failed else shape.done)
    if shape.failed is not None:
        outcome = {"status": "failed", "message": f"the process of {shape.failed} ended with code 1: see its log"}
        (folder / "branches" / shape.failed.replace("/", "_") / "outcome.json").write_text(json.dumps(outcome))
    return folder


def write_metrics(folder: Path, branch: str, bowl: Bowl, *, points: int, done: float = 1.0) -> Path:
    """What a trainer logs."""
    path = folder / "branches" / branch.replace("/", "_") / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    position = bowl.shape.branches.index(branch)
    noise = np.random.default_rng([position, points])
    lines = []
    for i in range(1, int(points * done) + 1):
        t = i / points
        loss = FLOOR + 0.02 + 0.26 * math.exp(-3.2 * t) + 0.004 * position * t + float(noise.normal()) * 0.012
        row = {"tokens": int(bowl.shape.horizon * t), "train_loss": loss, "tokens_per_second": 1.9e6}
        lines.append(json.dumps(row))
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def plan_record(shape: Shape) -> PlanRecord:
    """Recipes that each change something."""
    recipe = {
        "optimizer": "muon",
        "momentum": "0",
        "peak_lr": "0.000339",
        "global_batch": "256",
        "seed": "1234",
        "schedule": "cosine to 3.39e-05",
        "warmup": "1%",
        "weight_decay": "0.1",
    }
    branches = {}
    for i, name in enumerate(shape.branches):
        change = dict(RECIPES[j] for j in ([] if i == 0 else [0, (i - 1) % len(RECIPES)]))
        changed = {field: (recipe[field], value) for field, value in change.items()}
        branches[name] = BranchPlan(recipe={**recipe, **change}, changed=changed, steps=1200)
    total = shape.horizon * len(shape.branches)
    whole = PlanRecord(
        inputs={"study": "0" * 64},
        title=shape.title,
        seed=0,
        setting=Setting.EXTENDED,
        horizon=shape.horizon,
        checkpoint_every=shape.horizon // shape.checkpoints,
        sequence_length=4096,
        total_tokens=total,
        total_params=7_900_000_000,
        active_params=1_300_000_000,
        flops_per_token=7.8e9,
        train_flops=7.8e9 * total,
        epochs=0.8,
        corpus={"train": 700 * B, "validation": 2_000_000, "test": 2_000_000},
        branches=branches,
        baseline=shape.branches[0],
    )
    if not shape.foreign:
        return whole
    bare = {name: BranchPlan(recipe={}, changed={}, steps=None) for name in shape.branches}
    unknown = ("seed", "checkpoint_every", "sequence_length", "total_params", "active_params", "flops_per_token")
    return dataclasses.replace(
        whole, branches=bare, corpus={}, **dict.fromkeys((*unknown, "train_flops", "epochs"), None)
    )


def train_record(bowl: Bowl) -> TrainRecord:
    """All finished, but for the one that failed: it left nothing to merge."""
    shape = bowl.shape
    return TrainRecord(
        inputs={"plan": "1" * 64},
        fork_point="f" * 64,
        branches=tuple(
            TrainedBranch(
                branch=b,
                status="failed" if b == shape.failed else "foreign" if shape.foreign else "finished",
                tokens=int(shape.horizon * 0.35) if b == shape.failed else shape.horizon,
                message=f"the process of {b} ended with code 1: see its log" if b == shape.failed else None,
                metrics=None if shape.foreign else f"branches/{b.replace('/', '_')}/metrics.jsonl",
                checkpoints=()
                if b == shape.failed
                else tuple(
                    TrainedCheckpoint(key=k, tokens=bowl.tokens[k], sha256=hashlib.sha256(k.encode()).hexdigest())
                    for k in bowl.keys[b]
                ),
            )
            for b in shape.branches
        ),
    )


def write_answer(records: Records) -> None:
    """The answer as the study's own stage writes it, but for the folder of weights; none without a soup."""
    found = records.require(ComparisonsRecord).comparisons
    by_signal = {one.signal: one for one in found if one.name == "soup-limited"}
    if not by_signal:
        return
    rows = {row.name: row for row in records.require(RowsRecord).rows}
    words = sentences(
        found,
        rows=rows,
        evaluations=records.require(EvaluationsRecord),
        screen=records.require(ScreenRecord),
        validation=records.require(ValidationRecord),
        optimism=records.require(ComparisonsRecord).optimism,
    )
    records.write(
        AnswerRecord(
            inputs={},
            soup=LIMITED,
            single=SINGLE,
            loss=by_signal[Signal.LOSS],
            accuracy=by_signal[Signal.ACCURACY],
            words=words,
            soup_folder="soup",
            seeds=(0,),
        ),
    )
