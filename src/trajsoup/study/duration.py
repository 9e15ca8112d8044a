"""How long a study will take on this machine, from rates that are measured with its own model.

    plan, corpus -> probe: some passes of training and of scoring (lm/rates.py), kept in the cache -> Rates
    plan, passes, rates -> Duration: processor time of each part, and hours on an idle machine

What costs little beside passes of a model is left out: tokenising, bootstraps, geometry, the report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.core.threads import evenly
from trajsoup.engine.executor import LocalExecutor
from trajsoup.errors import OutputError
from trajsoup.lm.cpu_isa import isa_environment, machine
from trajsoup.lm.rates import ScoringRate, TrainingProbe, TrainingRate, scoring_rate, training_rate
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic
from trajsoup.study.file.trainer import Builtin
from trajsoup.study.passes import Passes
from trajsoup.study.score.scorer import FORK_POINT, make_scorer
from trajsoup.study.train.branches import branch_jobs, share_of_cores
from trajsoup.study.train.fork_point import find_fork_point
from trajsoup.study.train.plan import Plan

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus
    from trajsoup.lm.job import BranchJob

PROBED_ITEMS = 10  # of each configuration of the suite, at most
FILE = "rates.json"  # in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was measured, of one model on one machine."""

    training: Mapping[str, TrainingRate]  # by kind of branch
    scoring: ScoringRate
    probed_items: int  # of each configuration of the suite

    @property
    def on_cpu(self) -> bool:
        """Whether no accelerator works."""
        return self.scoring.on_cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """What a study takes."""

    seconds: float  # by the clock, on a machine that does nothing else
    parts: Mapping[str, float]  # seconds of processor time, or by the clock where an accelerator works; all seeds
    on_cpu: bool
    notes: tuple[str, ...] = ()


def no_duration(plan: Plan) -> str | None:
    """Why the time of this study cannot be told before it runs; None: it can."""
    trainer = plan.study.trainer
    if not isinstance(trainer, Builtin):
        return "branches are trained by a command, and only a run of it shows its speed"
    if trainer.processes * trainer.nodes > 1 or trainer.launcher is not None:
        return "a branch takes several processes, and only a run of them shows their speed"
    return None


def predict(plan: Plan, corpus: Corpus, passes: Passes, *, cache: Path) -> Duration:
    """Measure, unless that was done before, and add up."""
    cores = len(os.sched_getaffinity(0))
    fork_point, first = find_fork_point(plan.study, corpus, sequence_length=plan.sequence_length, cache=cache)
    share = share_of_cores(
        plan.study.trainer, cores=cores, jobs=min(evenly(len(plan.runs), cores=cores), len(plan.runs))
    )
    start = fork_point if first is None else first.fork_point
    branches = list(branch_jobs(plan, corpus, start, share=share, runs=plan.runs).values())
    rates = _measured(plan, corpus, start, [*branches, *([] if first is None else [first])], cores=cores, cache=cache)
    return add_up(plan, passes, rates, branches=branches, pretraining=first, cores=cores)


def add_up(
    plan: Plan, passes: Passes, rates: Rates, *, branches: list[BranchJob], pretraining: BranchJob | None, cores: int
) -> Duration:
    """Branches run beside each other, a fork point is pretrained by one thread, scoring takes all cores."""
    said, scoring, seeds = plan.study.evaluation, rates.scoring, plan.study.seeds
    documents = passes.tokens(plan) * scoring.token_seconds
    per_item = scoring.suite_seconds / max(rates.probed_items, 1)
    answering = passes.validation if said.rank_by is Signal.ACCURACY else passes.answered
    on_validation = said.items if said.validation_items is None else said.validation_items
    in_sweeps = said.items if said.sweep_items is None else said.sweep_items
    tasks = per_item * (answering * on_validation + passes.test * said.items + passes.swept * in_sweeps)
    each = [rates.training[kind_of(job)].seconds(job) for job in branches]
    begin = 0.0 if pretraining is None else rates.training[kind_of(pretraining)].seconds(pretraining)
    token = sum(each) / sum(job.horizon for job in branches)
    learned = passes.gradient_tokens * rates.training[kind_of(branches[0])].token_seconds
    scored = documents + tasks + passes.ingredients * scoring.ingredient_seconds + learned
    asked = plan.study.neighbours
    beside = 0.0 if asked is None else asked.trained_tokens(plan.positions.horizon) * token
    own = {"pretraining": begin, "training": sum(each), "neighbours": beside, "scoring": scored}
    parts = {name: part * seeds for name, part in own.items()}
    if not rates.on_cpu:
        seconds = sum(parts.values())
    else:
        threads = max(job.threads or 1 for job in branches)
        one = begin + max(sum(each) / cores, max(each) / threads) + (beside + scored) / cores
        seconds = max(sum(parts.values()) / cores, one)
    missing = [name for name, asked in (("lm-eval tasks", said.lm_eval), ("fine-tuning", plan.study.sft)) if asked]
    return Duration(
        seconds=seconds,
        parts={name: part for name, part in parts.items() if part},
        on_cpu=rates.on_cpu,
        notes=(f"the time of {' and '.join(missing)} is not in it",) if missing else (),
    )


def kind_of(job: BranchJob) -> str:
    """What makes two branches of a study equally fast: another data order or learning rate does not."""
    return f"{job.recipe.optimizer.value}, passes of {job.pass_tokens:,} tokens, {job.threads} threads"


def _measured(plan: Plan, corpus: Corpus, fork_point: Path, jobs: list[BranchJob], *, cores: int, cache: Path) -> Rates:
    kinds = {kind_of(job): job for job in jobs}
    said = plan.study.evaluation
    shape = [
        machine(), cores, jobs[0].fork_point_digest, sorted(kinds), plan.study.trainer, plan.dtype, plan.sequence_length,
        said.window, said.dtype, said.device, bool(said.items),
    ]  # fmt: skip
    key = hashlib.sha256(str(shape).encode()).hexdigest()[:20]
    record = cache / FILE
    known: dict[str, Rates] = {}
    with contextlib.suppress(OutputError):  # a memory, nothing more
        known = read_json(record, dict[str, Rates], cure="remove it", error=OutputError)
    if key not in known:
        known[key] = _measure(plan, corpus, fork_point, kinds, cores=cores, cache=cache)
        with contextlib.suppress(OutputError):
            write_atomic(record, json.dumps({k: dataclasses.asdict(rates) for k, rates in known.items()}, indent=1))
    return known[key]


def _measure(
    plan: Plan, corpus: Corpus, fork_point: Path, kinds: Mapping[str, BranchJob], *, cores: int, cache: Path
) -> Rates:
    """All cores are kept busy: two threads of one core are slower together than apart, and branches run together."""
    environment = isa_environment(cache=cache)
    at_once = max(cores // max(job.threads or 1 for job in kinds.values()), 1)
    asked = [kind for kind in kinds for _ in range(-(-at_once // len(kinds)))]
    with LocalExecutor(at_once) as executor:
        probes = [TrainingProbe(job=kinds[kind], environment=environment) for kind in asked]
        found = executor.map(training_rate, probes, attempts=1)
    training = {kind: _mean([rate for k, rate in zip(asked, found, strict=True) if k == kind]) for kind in kinds}
    from trajsoup.lm.live import load_model, present_device
    from trajsoup.lm.tasks.scoring import prepare_suite

    checkpoint, said = open_checkpoint(fork_point), plan.study.evaluation
    scorer = make_scorer(
        corpus, {FORK_POINT: checkpoint}, folder=cache, evaluation=said, base=plan.study.path.parent
    )  # fmt: skip
    items = min(said.items, PROBED_ITEMS)
    suite = prepare_suite(
        scorer.settings.suite, tokenizer=corpus.tokenizer, split=Split.VALIDATION, items_each=items,
        documents=scorer.corpus.validation,
    ) if items else None  # fmt: skip
    model = load_model(checkpoint, device=present_device(said.device), dtype=scorer.settings.dtype)
    scoring = scoring_rate(
        model, checkpoint, documents=scorer.corpus.validation, settings=scorer.settings.validation, suite=suite
    )
    return Rates(training=training, scoring=scoring, probed_items=items)


def _mean(rates: list[TrainingRate]) -> TrainingRate:
    names = [f.name for f in dataclasses.fields(TrainingRate)]
    return TrainingRate(**{name: sum(getattr(r, name) for r in rates) / len(rates) for name in names})
