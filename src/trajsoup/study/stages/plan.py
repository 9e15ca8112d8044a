"""The plan stage: write down what the study will do, before anything is trained."""

from __future__ import annotations

from trajsoup.core.budget import Setting
from trajsoup.core.pool import Unit
from trajsoup.study.records.results import BranchPlan, PlanRecord, Split
from trajsoup.study.train.plan import Plan, plan_study
from trajsoup.study.workbench import Workbench


def plan_stage(bench: Workbench) -> bool:
    """Write down what the study will do."""
    inputs = {"study": bench.setup.digest}
    return bench.records.ensure(PlanRecord, inputs, lambda: _plan(bench, inputs))


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
