"""The plan stage: write down what the study will do, before anything is trained."""

from __future__ import annotations

from trajsoup.core.budget import Setting
from trajsoup.core.pool import Unit
from trajsoup.core.splits import Split
from trajsoup.study.file.study import ForeignStudy
from trajsoup.study.records.plan import BranchPlan, PlanRecord
from trajsoup.study.train.plan import Plan
from trajsoup.study.workbench import Workbench

SEEN = "test documents that the runs were trained on would flatter them, and nothing here can tell"


def plan_stage(bench: Workbench) -> bool:
    """Write down what the study will do."""
    inputs = {"study": bench.setup.digest}
    return bench.records.ensure(PlanRecord, inputs, lambda: _plan(bench, inputs))


def _plan(bench: Workbench, inputs: dict[str, str]) -> PlanRecord:
    setup = bench.setup
    bench.require_tasks()
    plan = bench.plan
    sizes = {split.value: bench.corpus.split(split).n_tokens for split in Split}
    if plan is not None:
        return _trained_plan(plan, inputs, title=setup.title, seed=setup.seed, sizes=sizes)
    assert isinstance(setup, ForeignStudy)
    assert setup.corpus is not None
    foreign, spec = setup.runs, setup.corpus
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
        notes=(
            *foreign.notes,
            *(() if foreign.unit is Unit.TOKENS else ("positions are steps, not tokens",)),
            f"{SEEN}, and these were split off `train`" if spec.train and not spec.test else SEEN,
        ),
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
        apart=plan.budget.apart,
        notes=plan.notes,
    )
