"""`keep: needed`: branches are trained from checkpoint to checkpoint, and what no row can take any more is deleted at once.

    train to the next position -> score what is new -> into the sum of the run, where Full Soup is asked for (train/sums.py)
    -> core/retention.py: still needed? -> else named in deleted.json, deleted

Each branch then has the K best of every stop that it has passed, the K best so far and the last. Killed, it goes on: what
is deleted is known by its identity, so the records are those of a study that kept everything. Only folders that this study
trained below its own branches/ are ever deleted.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from trajsoup.core.retention import still_needed
from trajsoup.core.selection import usable
from trajsoup.core.threads import evenly
from trajsoup.store.identity import Identities
from trajsoup.store.pruning import prune
from trajsoup.study.file.keep import keeps_sums
from trajsoup.study.file.study import Study
from trajsoup.study.live_scores import LiveScores
from trajsoup.study.train.branches import TrainedStudy, branch_jobs, share_of_cores, train_jobs, train_study
from trajsoup.study.train.deleted import Deleted, read_deleted, write_deleted
from trajsoup.study.train.plan import Plan, Run, stops_of, sum_stops
from trajsoup.study.train.processes import Outcome, Status
from trajsoup.study.train.sums import add_to_sum, forget_sums, read_sums
from trajsoup.study.workbench import Workbench


def train_keeping(bench: Workbench) -> TrainedStudy:
    """Train every branch of the study to its horizon, with no more checkpoints on disk than may still be needed."""
    study, plan = bench.setup, bench.plan
    assert isinstance(study, Study)
    assert plan is not None
    asked = {"jobs": bench.jobs, "cache": bench.cache, "corpus": bench.corpus, "on_progress": bench.on_train}
    fork_point = train_study(study, branches=[], plan=plan, executor=bench.executor, **asked).fork_point
    live = LiveScores(bench, plan, fork_point=fork_point)
    ended: dict[str, Outcome] = {}
    for position in plan.positions.all():
        lost = {name for name, outcome in ended.items() if outcome.status is not Status.FINISHED}
        runs = [run for run in plan.runs if run.positions.horizon >= position and run.name not in lost]
        ended |= _train_to(position, bench, plan, runs=runs, fork_point=fork_point)
        if keeps_sums(study):
            keep_sums(live, runs, tokens=position, identities=bench.identities)
        give_up(live, runs, tokens=position, identities=bench.identities)
    return TrainedStudy(plan=plan, fork_point=fork_point, outcomes=tuple(ended[run.name] for run in plan.runs))


def keep_sums(live: LiveScores, runs: list[Run], *, tokens: int, identities: Identities) -> None:
    """Put into the sum of each run what it had by the position and has scored soundly, before anything of it is deleted."""
    study = live.plan.study
    for run, pool in zip(runs, live.pools(runs, tokens=tokens), strict=True):
        known = [one for one in read_sums(study.output) if one.run == run.name]
        last = known[-1] if known else None
        new = {
            c.key: live.checkpoints[c.key]
            for c in usable(pool).candidates
            if c.key in live.checkpoints and (last is None or c.key not in last.members)
        }
        if new:
            hashes = {key: identities.checkpoint(checkpoint) for key, checkpoint in new.items()}
            known.append(add_to_sum(last, new, hashes, run=run.name, tokens=tokens, output=study.output))
        if known:
            forget_sums(known, stops=sum_stops(study, run), output=study.output)


def give_up(live: LiveScores, runs: list[Run], *, tokens: int, identities: Identities) -> tuple[str, ...]:
    """Delete what can enter no row any more of what these runs had by the position; return the keys."""
    study = live.plan.study
    evaluation = study.evaluation
    useless: dict[str, Deleted] = {}
    for run, pool in zip(runs, live.pools(runs, tokens=tokens), strict=True):
        stops, most = stops_of(study, run), max(evaluation.ks)
        needed = still_needed(pool, stops=stops, top_k=most, rank_by=evaluation.rank_by)
        for c in pool.candidates:
            if c.key not in needed and c.key in live.checkpoints:
                known = identities.checkpoint(live.checkpoints[c.key])
                useless[c.key] = Deleted(run=run.name, tokens=c.tokens, sha256=known)
    if useless:
        identities.save()
        write_deleted(study.output, {**read_deleted(study.output), **useless})
        prune([study.output / key for key in useless], below=study.output / "branches")
        for key, one in useless.items():
            live.forget(key, one)
    return tuple(useless)


def _train_to(position: int, bench: Workbench, plan: Plan, *, runs: list[Run], fork_point: Path) -> dict[str, Outcome]:
    cores = len(os.sched_getaffinity(0))
    at_once = bench.jobs or evenly(len(runs), cores=cores)
    share = share_of_cores(plan.study.trainer, cores=cores, jobs=min(at_once, len(runs)))
    jobs = branch_jobs(plan, bench.corpus, fork_point, share=share, runs=runs)
    outcomes = train_jobs(
        plan.study,
        {name: dataclasses.replace(job, stop_at=position) for name, job in jobs.items()},
        at_once=at_once,
        cache=bench.cache,
        on_progress=bench.on_train,
        executor=bench.executor,
        may_diverge=True,
    )
    return {outcome.branch: outcome for outcome in outcomes}
