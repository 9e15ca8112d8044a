"""What stands behind the compute axis: the "Completion fields" of fig:trajectory-soup-compute-allocation (app:geometry)."""

from __future__ import annotations

from trajsoup.core.completion import ScalingFields
from trajsoup.core.frontier import SoupPoint, frontier, training_flops
from trajsoup.core.pool import RankBy
from trajsoup.study.record_files import Records
from trajsoup.study.records import PlanRecord, RowRecord, SweepPoint, ValidationRecord

RAW, SOUP = "raw training", "Trajectory Soup"


def compute_fields(records: Records) -> ScalingFields | None:
    """(N, t) of every top-K merge, cheapest first, and how many points enter each fit; None where FLOPs are not known."""
    plan: PlanRecord = records.require("plan")
    validation: ValidationRecord = records.require("validation")
    if plan.flops_per_token is None:
        return None
    merges: dict[str, SweepPoint | RowRecord] = {row.name: row for row in records.require("rows").rows}
    for name in ("horizons", "scaling"):
        if name in records.sweeps():
            merges |= {p.row: p for p in records.require(f"sweeps/{name}").points}
    soups = [
        SoupPoint(
            compute=training_flops([m.budget_tokens], flops_per_token=plan.flops_per_token),
            score=m.validation_loss,
            n_branches=len(m.branches),
            horizon=m.horizon or 0,
            k=m.k,
        )
        for m in merges.values()
        if m.validation_loss is not None and m.k is not None and m.budget_tokens > 0
    ]
    raw = [c for c in validation.checkpoints if c.branch == plan.baseline and c.loss is not None and c.tokens > 0]
    return ScalingFields(
        soups=tuple(
            (s.n_branches, s.horizon) for s in sorted(soups, key=lambda s: (s.compute, s.n_branches, s.horizon))
        ),
        fitted_points={RAW: len(raw), SOUP: len(frontier(soups, rank_by=RankBy.LOSS, improving=True))},
    )
