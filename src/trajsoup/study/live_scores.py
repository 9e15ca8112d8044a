"""Checkpoints of branches that still train, scored as they are saved: as the validation stage will want them.

    folders of runs, what was deleted of them -> new checkpoints scored on validation and on the probe -> pools

What was scored is known from its record; a checkpoint that `keep: needed` has deleted is known by its identity.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.signal import Signal
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.study.score.scorer import FORK_POINT, Scorer, make_scorer, single
from trajsoup.study.train.deleted import Deleted, read_deleted
from trajsoup.study.train.plan import Plan, Run
from trajsoup.study.train.saved import saved_branch
from trajsoup.study.workbench import SCORES, Workbench


class LiveScores:
    """Not a record: what one process knows of branches while they train."""

    def __init__(self, bench: Workbench, plan: Plan, *, fork_point: Path) -> None:
        self.plan = plan
        self.checkpoints: dict[str, Checkpoint] = {FORK_POINT: open_checkpoint(fork_point)}
        self.deleted = read_deleted(plan.study.output)
        self._gone = {key: one.sha256 for key, one in self.deleted.items()}
        self._known: dict[str, Candidate] = {}
        self.probe: dict[tuple[str, int], float | None] = {}  # branch, tokens -> loss
        self.scorer: Scorer = make_scorer(
            bench.corpus,
            self.checkpoints,
            model_source=self.checkpoints[FORK_POINT],
            folder=plan.study.output / SCORES,
            evaluation=plan.study.evaluation,
            base=plan.study.path.parent,
            progress=bench.progress,
            executor=bench.executor,
            options=bench.options,
            gone=self._gone,
        )

    def pools(self, runs: Sequence[Run], *, tokens: int) -> list[Pool]:
        """Of every run what it had by the position, with scores."""
        found = {run.name: self._saved(run, tokens) for run in runs}
        self._score([c for each in found.values() for c in each if c.key not in self._known])
        return [Pool(branch=run.branch, candidates=tuple(self._known[c.key] for c in found[run.name])) for run in runs]

    def forget(self, key: str, deleted: Deleted) -> None:
        """It is no longer there; its scores stay."""
        self.checkpoints.pop(key, None)
        self.deleted[key], self._gone[key] = deleted, deleted.sha256

    def _saved(self, run: Run, tokens: int) -> list[Candidate]:
        output = self.plan.study.output
        step_tokens = next(b.step_tokens for b in self.plan.branches if b.name == run.branch)
        saved = saved_branch(output / "branches" / run.name, step_tokens)
        at = {key: one.tokens for key, one in self.deleted.items() if one.run == run.name}
        for s in () if saved is None else saved.branches[0].checkpoints:
            assert saved is not None
            key = os.path.relpath(os.path.abspath(str(s.path)), os.path.abspath(output))
            at[key] = saved.position(s)
            if at[key] <= tokens and key not in self.checkpoints:
                self.checkpoints[key] = open_checkpoint(s.path)
        in_order = sorted(at, key=lambda key: at[key])
        return [Candidate(key=key, branch=run.branch, tokens=at[key]) for key in in_order if at[key] <= tokens]

    def _score(self, new: Sequence[Candidate]) -> None:
        if not new:
            return
        evaluation = self.plan.study.evaluation
        rows = [single(c.key) for c in new]
        scores = self.scorer.validate(rows)
        probe = self.scorer.probe(rows, max_tokens=evaluation.probe_tokens, source=evaluation.probe_source)
        for c in new:
            losses, on_probe = scores[c.key].losses, probe[c.key].losses
            accuracy = scores[c.key].overall_average if evaluation.rank_by is Signal.ACCURACY else None
            loss = float("nan") if losses is None else losses.loss()
            training = self.probe[c.branch, c.tokens] = None if on_probe is None else on_probe.loss()
            pieces = () if on_probe is None else on_probe.pieces()
            self._known[c.key] = dataclasses.replace(
                c, val_loss=loss, accuracy=accuracy, train_loss=training, train_pieces=pieces
            )
