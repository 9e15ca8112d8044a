"""A whole study: plan, train, validate, screen, select, blend, evaluate; resumable at every stage.

    Setup -> stages in order (each skipped when its record is up to date) -> Ran

On runs that exist already it starts after training. With several seeds everything is repeated, fork point included.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.core.soup import Row
from trajsoup.engine.executor import Executor
from trajsoup.errors import HeldError, StudyError
from trajsoup.store.lock import holding
from trajsoup.study.file.evaluation import Sweep
from trajsoup.study.file.setup import Setup, with_seed
from trajsoup.study.publish import publish_study
from trajsoup.study.records.files import NotMadeError, Records
from trajsoup.study.score.scorer import OnScore
from trajsoup.study.seeds_at_once import OnStage, evenly, run_seeds
from trajsoup.study.stages.answer import SOUP, answer_stage, seeds_stage
from trajsoup.study.stages.comparisons import comparisons_stage, evaluations_stage
from trajsoup.study.stages.fine_tuning import fine_tuning_stage
from trajsoup.study.stages.first import plan_stage, rows_stage, screen_stage, train_stage, validation_stage
from trajsoup.study.stages.frontier import frontier_stage
from trajsoup.study.stages.geometry import geometry_stage
from trajsoup.study.stages.retention import retention_stage
from trajsoup.study.stages.sweeps import choose_sweeps, reported_rows, sweeps_stage
from trajsoup.study.stages.theory import theory_stage
from trajsoup.study.train.branches import OnProgress
from trajsoup.study.train.data import cache_folder
from trajsoup.study.workbench import Workbench

if TYPE_CHECKING:
    from trajsoup.lm.corpus import Corpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run leaves."""

    setup: Setup
    records: Records
    made: tuple[str, ...]  # records that were made now; empty: nothing had changed
    soup: Path | None


def run_study(
    setup: Setup,
    *,
    jobs: int | None = None,
    cache: Path | None = None,
    corpus: Corpus | None = None,
    on_stage: OnStage = lambda stage, seed: None,
    on_train: OnProgress | None = None,
    on_score: OnScore = lambda what, done, total: None,
    executor: Executor | None = None,
) -> Ran:
    """Run or resume every stage of every seed. With an `executor`, its machines train, score, measure and blend."""
    made: list[str] = []
    at_most, jobs, cache = jobs, jobs or len(os.sched_getaffinity(0)), cache or cache_folder()
    with _only_one(setup.output):
        left = [seed for seed in range(setup.seeds) if not is_finished(with_seed(setup, seed), cache=cache)]
        if len(left) > 1 and jobs > 1 and executor is None:
            made += run_seeds(
                setup,
                left,
                run=run_one,
                jobs=jobs,
                at_once=min(at_most or evenly(len(left), cores=jobs), len(left)),
                cache=cache,
                corpus=corpus,
                on_stage=on_stage,
                on_train=on_train,
                on_score=on_score,
            )
        else:
            for seed in left:
                one = with_seed(setup, seed)
                bench = Workbench(one, cache=cache, progress=on_score, corpus=corpus, executor=executor)
                made += run_one(bench, jobs=jobs, on_stage=on_stage, on_train=on_train)
        if setup.seeds > 1 and _of_all_seeds(setup):
            made.append("seeds")
        soup = setup.output / SOUP
        if setup.publish is not None:
            on_stage("publish", None)
            if publish_study(setup.output, setup.publish, soup=soup if soup.is_dir() else None):
                made.append("publish")
    return Ran(setup=setup, records=Records(setup.output), made=tuple(made), soup=soup if soup.is_dir() else None)


def _of_all_seeds(setup: Setup) -> bool:
    further = [f"sweeps/{sweep.name}" for sweep in setup.sweeps] + ["sft"] * (setup.sft is not None)
    return seeds_stage(setup.output, [with_seed(setup, s).output for s in range(setup.seeds)], further=further)


def is_finished(setup: Setup, *, cache: Path) -> bool:
    """Whether every record of one seed stands. Makes nothing, and loads nothing but the records' inputs."""
    bench = Workbench(setup, cache=cache, progress=lambda what, done, total: None)
    bench.records = Records(setup.output, look_only=True)
    try:
        run_one(bench, jobs=1, on_stage=lambda stage, seed: None, on_train=None)
    except NotMadeError:
        return False
    return True


def run_sweeps(
    setup: Setup,
    sweeps: Sequence[Sweep],
    *,
    cache: Path | None = None,
    corpus: Corpus | None = None,
    on_score: OnScore = lambda what, done, total: None,
) -> list[str]:
    """Make the records of these sweeps for a study that has been run; return the names of those made now."""
    bench = Workbench(setup, cache=cache or cache_folder(), progress=on_score, corpus=corpus)
    bench.records.require("screen")
    with _only_one(setup.output):
        made = sweeps_stage(bench, sweeps)
        frontier_stage(bench, sweeps)
        return made


def run_one(bench: Workbench, *, jobs: int, on_stage: OnStage, on_train: OnProgress | None) -> list[str]:
    """Run or resume every stage of one seed; return the names of the records made."""
    setup = bench.setup
    steps: list[tuple[str, Callable[[], bool | list[str]]]] = [
        ("plan", lambda: plan_stage(bench)),
        ("train", lambda: train_stage(bench, jobs=jobs, on_progress=on_train)),
        ("validation", lambda: validation_stage(bench)),
        ("screen", lambda: screen_stage(bench)),
        ("rows", lambda: rows_stage(bench)),
        ("evaluations", lambda: evaluations_stage(bench, also=lambda: _of_sweeps(bench))),
        ("comparisons", lambda: comparisons_stage(bench)),
        ("sweeps", lambda: sweeps_stage(bench, setup.sweeps)),
        ("frontier", lambda: frontier_stage(bench, setup.sweeps)),
        ("theory", lambda: theory_stage(bench)),
        ("geometry", lambda: geometry_stage(bench)),
        ("sft", lambda: fine_tuning_stage(bench) if setup.sft is not None else False),
        ("answer", lambda: answer_stage(bench)),
        ("retention", lambda: retention_stage(bench)),
    ]
    made: list[str] = []
    for name, step in steps:
        on_stage(name, setup.seed)
        if step():
            made.append(name)
    return made


def _of_sweeps(bench: Workbench) -> list[Row]:
    """What the sweeps will report on test."""
    return reported_rows(choose_sweeps(bench, bench.setup.sweeps), rank_by=bench.setup.evaluation.rank_by)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the study, so that two runs never write its records at once."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(holding(folder / ".run.lock"))
        except HeldError as error:
            raise StudyError(f"{folder} is being run by {error}: wait for it, or stop it first") from error
        yield
