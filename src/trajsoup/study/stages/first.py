"""The stages of a study, one function each: read the records before, do one thing, write one record.

    plan -> train -> validation -> screen -> rows -> (reporting.py, sweeps.py, ..., answer.py)

Each is skipped when its record names the inputs it would be made from. `run.py` calls them in order.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from trajsoup.core.budget import Setting
from trajsoup.core.pool import Unit
from trajsoup.core.screening import screen
from trajsoup.errors import ScreenError, TrainError
from trajsoup.merge.branches import Branch, Branches, scan_branches
from trajsoup.store.identity import Identities
from trajsoup.store.remote import Place, absolute, is_url
from trajsoup.store.runs import Saved
from trajsoup.study.choosing.entries import choose_entries, options_of, row_record
from trajsoup.study.choosing.main_table import main_entries
from trajsoup.study.records.files import digest_of
from trajsoup.study.records.results import (
    BranchPlan,
    PlanRecord,
    RowsRecord,
    ScoredCheckpoint,
    ScreenRecord,
    ScreenVerdict,
    Split,
    TrainedBranch,
    TrainedCheckpoint,
    TrainRecord,
    ValidationRecord,
)
from trajsoup.study.score.scorer import FORK_POINT, single, singles
from trajsoup.study.stages.sweeps import sweep_entries
from trajsoup.study.train.branches import OnProgress, train_study
from trajsoup.study.train.outcomes import METRICS, Status
from trajsoup.study.train.plan import Plan, plan_study
from trajsoup.study.workbench import Workbench


def plan_stage(bench: Workbench) -> bool:
    """Write down what the study will do."""
    inputs = {"study": bench.setup.digest}
    return bench.records.ensure("plan", inputs, lambda: _plan(bench, inputs))


def train_stage(bench: Workbench, *, jobs: int | None, on_progress: OnProgress | None) -> bool:
    """Train the branches, or find those that exist. A branch that failed stops here; one that diverged does not."""
    inputs = {"plan": bench.records.digest("plan")}
    make = _foreign if bench.setup.foreign is not None else _train
    return bench.records.ensure("train", inputs, lambda: make(bench, inputs, jobs, on_progress))


def validation_stage(bench: Workbench) -> bool:
    """Score every checkpoint on validation documents and on the probe of training documents."""
    evaluation = bench.setup.evaluation
    inputs = {"train": bench.records.digest("train"), "evaluate": digest_of(dataclasses.asdict(evaluation))}

    def make() -> ValidationRecord:
        pools = bench.bare_pools()
        rows = singles(pools)
        start = [single(FORK_POINT)] if FORK_POINT in bench.checkpoints else []
        scores = bench.scorer.validate([*rows, *start])
        probe = bench.scorer.probe(rows, max_tokens=evaluation.probe_tokens)
        losses = {name: s.losses.loss() if s.losses is not None else None for name, s in scores.items()}
        on_probe = {name: s.losses.loss() if s.losses is not None else None for name, s in probe.items()}
        fork = scores.get(FORK_POINT)
        return ValidationRecord(
            inputs=inputs,
            split=Split.VALIDATION,
            documents=bench.scorer.corpus.validation.n_documents,
            fork_point_loss=losses.get(FORK_POINT),
            fork_point_accuracy=None if fork is None else fork.overall_average,
            checkpoints=tuple(
                ScoredCheckpoint(
                    key=c.key,
                    branch=c.branch,
                    tokens=c.tokens,
                    loss=losses[c.key],
                    accuracy=scores[c.key].overall_average,
                    probe_loss=on_probe[c.key],
                    categories=scores[c.key].category_means,
                )
                for pool in pools
                for c in pool.candidates
            ),
        )

    return bench.records.ensure("validation", inputs, make)


def screen_stage(bench: Workbench) -> bool:
    """Compare every branch with the baseline on the probe."""
    inputs = {"validation": bench.records.digest("validation"), "plan": bench.records.digest("plan")}

    def make() -> ScreenRecord:
        evaluation = bench.setup.evaluation
        baseline, tolerance = evaluation.baseline or bench.records.require("plan").baseline, evaluation.tolerance
        verdicts = screen(bench.pools(), baseline=baseline, tolerance=tolerance, force=evaluation.force)
        if not any(v.admitted for v in verdicts):
            raise ScreenError(
                f"no branch passed the screen against {baseline!r}: raise evaluate.tolerance, or name some in "
                "evaluate.force"
            )
        return ScreenRecord(
            inputs=inputs,
            baseline=baseline,
            tolerance=tolerance,
            measured_on=f"probe of {bench.setup.evaluation.probe_tokens:,} tokens of training documents",
            verdicts=tuple(
                ScreenVerdict(
                    branch=v.branch,
                    admitted=v.admitted,
                    tokens=v.tokens,
                    loss=v.loss,
                    baseline_loss=v.baseline_loss,
                    loss_gap=v.loss_gap,
                    suspiciously_low=v.suspiciously_low,
                    gaps=v.gaps,
                    forced=v.forced,
                )
                for v in verdicts
            ),
        )

    return bench.records.ensure("screen", inputs, make)


def rows_stage(bench: Workbench) -> bool:
    """Choose the rows of the main table on validation."""
    inputs = {"screen": bench.records.digest("screen")}

    def make() -> RowsRecord:
        field = bench.field()
        entries = main_entries(field)
        later = [entry for sweep in bench.setup.sweeps for entry in sweep_entries(field, sweep)]
        scores = bench.scorer.validate(options_of([*entries, *later]), what="choosing")  # one read for all of them
        chosen = choose_entries(entries, scores, rank_by=bench.setup.evaluation.rank_by)
        return RowsRecord(inputs=inputs, rows=tuple(row_record(c) for c in chosen))

    return bench.records.ensure("rows", inputs, make)


def _plan(bench: Workbench, inputs: dict[str, str]) -> PlanRecord:
    setup = bench.setup
    if setup.study is not None:
        plan_study(setup.study)  # a study that cannot be planned is refused before its corpus is tokenised
    bench.require_tasks()
    corpus = bench.corpus
    sizes = {split.value: corpus.split(split).n_tokens for split in Split}
    if setup.study is not None:
        study = setup.study
        plan = plan_study(
            study,
            train_tokens=corpus.train.n_tokens,
            validation_tokens=min(corpus.validation.n_tokens, setup.evaluation.validation_tokens),
            vocab_size=corpus.vocab_size,
        )
        return _trained_plan(plan, inputs, title=setup.title, seed=setup.seed, sizes=sizes)
    foreign = setup.foreign
    assert foreign is not None
    last = {b.name: max(map(foreign.position, b.checkpoints)) for b in foreign.branches}
    return PlanRecord(
        inputs=inputs,
        title=setup.title,
        seed=None,
        setting=Setting.EXTENDED,
        horizon=max(last.values()),
        checkpoint_every=None,
        sequence_length=None,
        total_tokens=sum(last.values()),
        total_params=None,
        active_params=None,
        flops_per_token=None,
        train_flops=None,
        epochs=None,
        corpus=sizes,
        branches={name: BranchPlan(recipe={}, changed={}, steps=None) for name in last},
        baseline=foreign.baseline,
        notes=foreign.notes if foreign.unit is Unit.TOKENS else (*foreign.notes, "positions are steps, not tokens"),
    )


def _trained_plan(
    plan: Plan, inputs: dict[str, str], *, title: str, seed: int | None, sizes: dict[str, int]
) -> PlanRecord:
    baseline = next((b.name for b in plan.branches if not b.changed), plan.branches[0].name)
    return PlanRecord(
        inputs=inputs,
        title=title,
        seed=seed,
        setting=plan.budget.setting,
        horizon=plan.positions.horizon,
        checkpoint_every=plan.positions.checkpoint_every,
        sequence_length=plan.sequence_length,
        total_tokens=plan.budget.total_tokens,
        total_params=plan.model.total_params,
        active_params=plan.model.active_params,
        flops_per_token=plan.model.flops_per_token,
        train_flops=plan.cost.train_flops,
        epochs=plan.epochs,
        corpus=sizes,
        branches={
            b.name: BranchPlan(recipe=b.recipe.effective(), changed=dict(b.changed), steps=b.steps)
            for b in plan.branches
        },
        baseline=baseline,
        notes=plan.notes,
    )


def _train(bench: Workbench, inputs: dict[str, str], jobs: int | None, on_progress: OnProgress | None) -> TrainRecord:
    study = bench.setup.study
    assert study is not None
    trained = train_study(
        study, jobs=jobs, cache=bench.cache, corpus=bench.corpus, on_progress=on_progress, executor=bench.executor
    )
    broken = [o for o in trained.outcomes if o.status is Status.FAILED]
    if broken:
        reasons = "; ".join(f"{o.branch}: {o.message}" for o in broken)
        raise TrainError(f"{len(broken)} of {len(trained.outcomes)} branches did not finish. {reasons}")
    link = bench.setup.output / FORK_POINT
    if not os.path.lexists(link):
        link.symlink_to(os.path.abspath(trained.fork_point))
    branches: list[TrainedBranch] = []
    identities = bench.identities
    for outcome in trained.outcomes:
        folder = study.output / "branches" / outcome.branch
        step_tokens = next(b.step_tokens for b in trained.plan.branches if b.name == outcome.branch)
        found = _saved(folder, step_tokens)
        branches.append(
            TrainedBranch(
                branch=outcome.branch,
                status=outcome.status.value,
                tokens=outcome.tokens,
                message=outcome.message,
                metrics=f"branches/{outcome.branch}/{METRICS}" if (folder / METRICS).is_file() else None,
                checkpoints=()
                if found is None
                else _checkpoints(bench, found.branches[0], identities, position=found.position),
            )
        )
    identities.save()
    return TrainRecord(inputs=inputs, fork_point=_identity(identities, trained.fork_point), branches=tuple(branches))


def _saved(folder: Path, step_tokens: int) -> Branches | None:
    """The checkpoints of a trained branch; None where it diverged before the first."""
    if not any(folder.glob("checkpoint-*")):
        return None
    return scan_branches([folder], tokens_per_step=step_tokens)


def _foreign(bench: Workbench, inputs: dict[str, str], jobs: int | None, on_progress: OnProgress | None) -> TrainRecord:
    foreign = bench.setup.foreign
    assert foreign is not None
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
    from trajsoup.store.checkpoint import open_checkpoint

    return identities.checkpoint(open_checkpoint(path))
