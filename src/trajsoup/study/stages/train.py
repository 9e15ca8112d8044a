"""The train stage: train the branches, or find those that exist."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trajsoup.errors import TrainError
from trajsoup.merge.branches import Branch
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.identity import Identities
from trajsoup.store.remote import Place, absolute, is_url
from trajsoup.store.runs import Saved
from trajsoup.study.file.keep import Keep
from trajsoup.study.file.study import ForeignStudy, Study
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.train import TrainedBranch, TrainedCheckpoint, TrainRecord
from trajsoup.study.score.scorer import FORK_POINT
from trajsoup.study.train.branches import train_study
from trajsoup.study.train.deleted import read_deleted
from trajsoup.study.train.outcomes import METRICS
from trajsoup.study.train.plan import Plan, Run
from trajsoup.study.train.processes import Outcome, Status
from trajsoup.study.train.saved import saved_branch
from trajsoup.study.workbench import Workbench


def train_stage(bench: Workbench) -> bool:
    """Train the branches, or find those that exist. A branch that failed stops here; one that diverged does not."""
    inputs = {"plan": bench.records.digest(PlanRecord)}
    make = _foreign if isinstance(bench.setup, ForeignStudy) else _train
    return bench.records.ensure(TrainRecord, inputs, lambda: make(bench, inputs))


def _train(bench: Workbench, inputs: dict[str, str]) -> TrainRecord:
    study = bench.setup
    assert isinstance(study, Study)
    if study.allocation is not None:
        return _allocate(bench, inputs)
    if study.keep is Keep.NEEDED:
        from trajsoup.study.keeping import train_keeping

        trained = train_keeping(bench)
    else:
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
    runs = list(zip(trained.plan.runs, trained.outcomes, strict=True))
    return _record(bench, inputs, fork_point=trained.fork_point, plan=trained.plan, runs=runs)


def _allocate(bench: Workbench, inputs: dict[str, str]) -> TrainRecord:
    """Branches opened, extended and stopped; the record has those that are left."""
    from trajsoup.study.allocation.training import allocate

    done, plan = allocate(bench, inputs), bench.plan
    assert plan is not None
    bench.records.write(done.record)
    runs = {run.branch: run for run in plan.runs}
    left = [
        (runs[name], Outcome(branch=name, status=Status.FINISHED, tokens=done.played.tokens))
        for name in done.played.live
    ]
    return _record(bench, inputs, fork_point=done.fork_point, plan=plan, runs=left, until=done.played.tokens)


def _record(
    bench: Workbench,
    inputs: dict[str, str],
    *,
    fork_point: Path,
    plan: Plan,
    runs: Sequence[tuple[Run, Outcome]],
    until: int | None = None,
) -> TrainRecord:
    link = bench.setup.output / FORK_POINT
    if not os.path.lexists(link):
        link.symlink_to(os.path.abspath(fork_point))
    branches: dict[bool, list[TrainedBranch]] = {True: [], False: []}
    identities, deleted = bench.identities, read_deleted(bench.setup.output)
    for run, outcome in runs:
        folder = bench.setup.output / "branches" / run.name
        step_tokens = next(b.step_tokens for b in plan.branches if b.name == run.branch)
        found = saved_branch(folder, step_tokens)
        there = () if found is None else _checkpoints(bench, found.branches[0], identities, position=found.position)
        gone = [
            TrainedCheckpoint(key=key, tokens=one.tokens, sha256=one.sha256)
            for key, one in deleted.items()
            if one.run == run.name
        ]
        known = [c for c in (*there, *gone) if until is None or c.tokens <= until]
        branches[run.apart].append(
            TrainedBranch(
                branch=run.branch,
                status=outcome.status.value,
                tokens=outcome.tokens,
                message=outcome.message,
                metrics=f"branches/{run.name}/{METRICS}" if (folder / METRICS).is_file() else None,
                checkpoints=tuple(sorted(known, key=lambda c: c.tokens)),
                apart_for=run.positions.horizon if run.apart else None,
            )
        )
    identities.save()
    return TrainRecord(
        inputs=inputs,
        fork_point=_identity(identities, fork_point),
        branches=tuple(branches[False]),
        apart=tuple(branches[True]),
    )


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
