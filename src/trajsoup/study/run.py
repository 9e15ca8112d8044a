"""A whole study: plan, train, validate, screen, select, blend, evaluate; resumable at every stage.

    Setup -> stages in order (each skipped when its record is up to date) -> Ran

On runs that exist already it starts after training. With several seeds everything is repeated, fork point included.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.core.threads import evenly
from trajsoup.engine.executor import Executor
from trajsoup.study.cache import cache_folder
from trajsoup.study.file.study import Setup, load_study, with_seed
from trajsoup.study.publish import publish_study
from trajsoup.study.records.files import NotMadeError, Records, writing
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.seeds import SeedsRecord
from trajsoup.study.score.scorer import OnScore, silent
from trajsoup.study.seeds_at_once import OnStage, run_seeds
from trajsoup.study.stages import STAGES
from trajsoup.study.stages.answer import SOUP
from trajsoup.study.stages.frontier import make_frontier
from trajsoup.study.stages.seeds import seeds_stage
from trajsoup.study.stages.sweeps import make_sweeps
from trajsoup.study.sweeps.table import Sweep
from trajsoup.study.train.branches import OnProgress
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
    study: Setup | Path | str,
    *,
    jobs: int | None = None,
    cache: Path | None = None,
    corpus: Corpus | None = None,
    on_stage: OnStage = lambda stage, seed: None,
    on_train: OnProgress | None = None,
    on_score: OnScore = silent,
    executor: Executor | None = None,
) -> Ran:
    """Run or resume every stage of every seed. With an `executor`, its machines train, score, measure and blend.

    >>> run_study("study.yaml").soup  # doctest: +SKIP
    """
    setup = study if isinstance(study, Setup) else load_study(study)
    made: list[str] = []
    at_most, jobs, cache = jobs, jobs or len(os.sched_getaffinity(0)), cache or cache_folder()
    with writing(setup.output) as records:
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
                bench = Workbench(
                    one,
                    cache=cache,
                    progress=on_score,
                    corpus=corpus,
                    executor=executor,
                    records=Records(one.output, held=True),
                    jobs=at_most,
                    on_train=on_train,
                )
                made += run_one(bench, on_stage=on_stage)
        if setup.seeds > 1 and seeds_stage(records, setup):
            made.append(SeedsRecord.FILE)
        soup = setup.output / SOUP
        if setup.publish is not None:
            on_stage("publish", None)
            if publish_study(setup.output, setup.publish, soup=soup if soup.is_dir() else None):
                made.append("publish")
    return Ran(setup=setup, records=Records(setup.output), made=tuple(made), soup=soup if soup.is_dir() else None)


def is_finished(setup: Setup, *, cache: Path) -> bool:
    """Whether every record of one seed stands. Makes nothing, and loads nothing but the records' inputs."""
    records = Records(setup.output, look_only=True)
    bench = Workbench(setup, cache=cache, progress=silent, records=records)
    try:
        run_one(bench)
    except NotMadeError:
        return False
    return True


def run_sweeps(
    setup: Setup,
    sweeps: Sequence[Sweep],
    *,
    cache: Path | None = None,
    corpus: Corpus | None = None,
    on_score: OnScore = silent,
    executor: Executor | None = None,
) -> list[str]:
    """Make the records of these sweeps for a study that has been run; return the names of those made now."""
    Records(setup.output).require(ScreenRecord)
    with writing(setup.output) as records:
        bench = Workbench(
            setup,
            cache=cache or cache_folder(),
            progress=on_score,
            corpus=corpus,
            records=records,
            executor=executor,
        )
        made = make_sweeps(bench, sweeps)
        make_frontier(bench, sweeps)
        return made


def run_one(bench: Workbench, *, on_stage: OnStage = lambda stage, seed: None) -> list[str]:
    """Run or resume every stage of one seed; return the names of the records made."""
    made: list[str] = []
    for stage in STAGES:
        if stage.is_wanted(bench.setup):
            on_stage(stage.name, bench.setup.seed)
            if stage.run(bench):
                made.append(stage.name)
    return made
