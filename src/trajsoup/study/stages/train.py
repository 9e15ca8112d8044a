"""The train stage: train the branches, or find those that exist."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from trajsoup.errors import TrainError
from trajsoup.merge.branches import Branch, Branches, scan_branches
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.identity import Identities
from trajsoup.store.remote import Place, absolute, is_url
from trajsoup.store.runs import Saved
from trajsoup.study.file.study import ForeignStudy, Study
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.train import TrainedBranch, TrainedCheckpoint, TrainRecord
from trajsoup.study.score.scorer import FORK_POINT
from trajsoup.study.train.branches import train_study
from trajsoup.study.train.outcomes import METRICS
from trajsoup.study.train.processes import Status
from trajsoup.study.workbench import Workbench


def train_stage(bench: Workbench) -> bool:
    """Train the branches, or find those that exist. A branch that failed stops here; one that diverged does not."""
    inputs = {"plan": bench.records.digest(PlanRecord)}
    make = _foreign if isinstance(bench.setup, ForeignStudy) else _train
    return bench.records.ensure(TrainRecord, inputs, lambda: make(bench, inputs))


def _train(bench: Workbench, inputs: dict[str, str]) -> TrainRecord:
    study = bench.setup
    assert isinstance(study, Study)
    trained = train_study(
        study,
        jobs=bench.jobs,
        cache=bench.cache,
        corpus=bench.corpus,
        on_progress=bench.on_train,
        executor=bench.executor,
        plan=bench.plan,
    )
    broken = [o for o in trained.outcomes if o.status is Status.FAILED]
    if broken:
        reasons = "; ".join(f"{o.branch}: {o.message}" for o in broken)
        raise TrainError(f"{len(broken)} of {len(trained.outcomes)} branches did not finish. {reasons}")
    link = bench.setup.output / FORK_POINT
    if not os.path.lexists(link):
        link.symlink_to(os.path.abspath(trained.fork_point))
    branches: dict[bool, list[TrainedBranch]] = {True: [], False: []}
    identities = bench.identities
    for run, outcome in zip(trained.plan.runs, trained.outcomes, strict=True):
        folder = study.output / "branches" / run.name
        step_tokens = next(b.step_tokens for b in trained.plan.branches if b.name == run.branch)
        found = _saved(folder, step_tokens)
        branches[run.apart].append(
            TrainedBranch(
                branch=run.branch,
                status=outcome.status.value,
                tokens=outcome.tokens,
                message=outcome.message,
                metrics=f"branches/{run.name}/{METRICS}" if (folder / METRICS).is_file() else None,
                checkpoints=()
                if found is None
                else _checkpoints(bench, found.branches[0], identities, position=found.position),
                apart_for=run.positions.horizon if run.apart else None,
            )
        )
    identities.save()
    return TrainRecord(
        inputs=inputs,
        fork_point=_identity(identities, trained.fork_point),
        branches=tuple(branches[False]),
        apart=tuple(branches[True]),
    )


def _saved(folder: Path, step_tokens: int) -> Branches | None:
    """The checkpoints of a trained branch; None where it diverged before the first."""
    if not any(folder.glob("checkpoint-*")):
        return None
    return scan_branches([folder], tokens_per_step=step_tokens)


def _foreign(bench: Workbench, inputs: dict[str, str]) -> TrainRecord:
    assert isinstance(bench.setup, ForeignStudy)
    foreign = bench.setup.runs
    identities = bench.identities
    branches = tuple(
        TrainedBranch(
            branch=b.name,
            status="foreign",
            tokens=max(map(foreign.position, b.checkpoints)),
            message=None,
            metrics=None,
            checkpoints=_checkpoints(bench, b, identities, position=foreign.position),
        )
        for b in foreign.branches
    )
    fork = None if foreign.fork_point is None else _identity(identities, foreign.fork_point)
    identities.save()
    return TrainRecord(inputs=inputs, fork_point=fork, branches=branches)


def _checkpoints(
    bench: Workbench, branch: Branch, identities: Identities, *, position: Callable[[Saved], int]
) -> tuple[TrainedCheckpoint, ...]:
    found: list[TrainedCheckpoint] = []
    for s in branch.checkpoints:
        key = absolute(s.path)
        if not is_url(key):
            key = os.path.relpath(key, os.path.abspath(bench.setup.output))
        found.append(TrainedCheckpoint(key=key, tokens=position(s), sha256=_identity(identities, s.path)))
    return tuple(found)


def _identity(identities: Identities, path: Place) -> str:
    return identities.checkpoint(open_checkpoint(path))
