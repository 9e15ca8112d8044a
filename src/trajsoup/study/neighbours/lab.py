"""What a method that trains works with: jobs like those of the branches, a place to keep its runs, scores of its models.

    Lab.job -> Lab.train -> checkpoints -> rows of W -> Lab.scored -> Contender

Its folder is named by everything that shapes its runs, so a changed setting never mixes with what an older one left.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajsoup.core.scores import TestScores, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.lm.job import RECORD, BranchJob, read_job
from trajsoup.lm.mixture import portions
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import plan_row
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.remote import absolute
from trajsoup.store.scores import ScoreKey, test_store
from trajsoup.study.file.study import Study
from trajsoup.study.records.files import digest_of
from trajsoup.study.score.scorer import FORK_POINT, Scorer
from trajsoup.study.train.branches import train_jobs
from trajsoup.study.workbench import Workbench

FOLDER = "neighbours"  # below the study


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A model that such a method ends with."""

    name: str  # unique among them
    label: str
    made_of: str  # in words
    tokens: int  # trained for it, over all runs together
    validation: ValidationScores
    test: TestScores
    weights: Mapping[str, float]  # over checkpoints; empty: it is no row of W
    models: int = 1  # that answer together: what inference costs
    beside: str | None = None  # another contender that it is compared with, besides Trajectory Soup


class Lab:
    """Live things of one study: no record."""

    def __init__(self, bench: Workbench) -> None:
        assert isinstance(bench.setup, Study)
        self.bench, self.study = bench, bench.setup
        plan = bench.plan
        assert plan is not None
        self.horizon, self.checkpoint_every = plan.positions.horizon, plan.positions.checkpoint_every
        first = self.study.output / "branches" / next(iter(self.study.recipes)) / RECORD
        own = portions(bench.corpus.train, self.study.baseline.sources, folder=self.study.output / "branches")
        self.like = dataclasses.replace(read_job(first), recipe=self.study.baseline, mixture=own)  # all but its name

    def folder(self, name: str, settings: Any) -> Path:
        """Where a method keeps its runs, by its settings and what a branch is told."""
        told = [settings, self.like.fork_point_digest, self.like.tokens.digest, self.like.recipe.effective()]
        shape = digest_of([*told, self.horizon, self.like.sequence_length, self.like.dtype])
        return (self.study.output / FOLDER / f"{name}-{shape[:12]}").absolute()

    def job(self, folder: Path, **changes: Any) -> BranchJob:
        """A run of the baseline's recipe in this folder, with what is changed."""
        return dataclasses.replace(self.like, branch=folder.name, folder=folder, **changes)

    def train(self, *jobs: BranchJob) -> None:
        """Train them, as many at once as there is room for; what is finished is skipped."""
        bench = self.bench
        train_jobs(
            self.study,
            {job.branch: job for job in jobs},
            at_once=bench.jobs,
            cache=bench.cache,
            on_progress=bench.on_train,
            executor=bench.executor,
        )

    def key(self, folder: Path) -> str:
        """The key of a checkpoint: its folder, relative to the study."""
        return os.path.relpath(folder, os.path.abspath(self.study.output))

    def blend(self, row: Row, out: Path) -> Path:
        """Write a row over the fork point and checkpoints of the study as a model folder, unless it is there."""
        if not out.is_dir():
            fork_point = self.bench.fork_point
            assert fork_point is not None
            places = {FORK_POINT: absolute(fork_point)}
            weights = {places.get(k) or absolute(self.bench.place(k)): weight for k, weight in row.weights.items()}
            plan = plan_row(Row(name=row.name, weights=weights), fork_point=fork_point)
            make_soup(plan, out, executor=self.bench.executor)
        return out

    def scored(self, *rows: Row, alone: bool = False) -> dict[str, tuple[ValidationScores, TestScores]]:
        """Scores of rows over the study's checkpoints and the method's own, by name; `alone`: of another architecture."""
        validation, test = self.validated(*rows, alone=alone), self._scorer(rows, alone=alone).test(rows)
        return {row.name: (validation[row.name], test[row.name]) for row in rows}

    def validated(self, *rows: Row, alone: bool = False) -> dict[str, ValidationScores]:
        """The same on validation alone: what may choose among them."""
        tasks = self.study.evaluation.rank_by is Signal.ACCURACY
        return self._scorer(rows, alone=alone).validate(rows, what="neighbours", tasks=tasks)

    def _scorer(self, rows: Sequence[Row], *, alone: bool) -> Scorer:
        known = self.bench.checkpoints
        keys = {key for row in rows for key in row.weights}
        own: dict[str, Checkpoint] = {k: open_checkpoint(self.bench.place(k)) for k in keys if k not in known}
        scorer = dataclasses.replace(self.bench.scorer, checkpoints=own if alone else {**known, **own})
        return dataclasses.replace(scorer, model_source=None) if alone else scorer

    def kept(self, scores: TestScores, *, name: str, like: Row) -> TestScores:
        """Scores of what is no row of W, kept beside those of rows so that seeds can be compared by document."""
        scorer = self.bench.scorer
        key = ScoreKey(
            model=digest_of([name, sorted(like.weights.items())]),
            corpus=scorer.corpus.test.digest,
            suite=None,
            settings=scorer.settings.identity(),
        )
        store = test_store(scorer.folder)
        store.write(key, scores, name=name)
        return store.named(key.digest)
