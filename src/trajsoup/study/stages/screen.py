"""The screen stage: compare every branch with the baseline on the probe (sec:problem-formulation), or by logged losses.

At every position where a branch saved: a soup is made of branches that pass at the horizon it uses, T / N when limited.
"""

from __future__ import annotations

from trajsoup.core.screening import SMOOTHED, Verdict, median_branch, screen, screened_at
from trajsoup.errors import ScreenError
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.workbench import Workbench


def screen_stage(bench: Workbench) -> bool:
    """Compare every branch with the baseline on the probe."""
    inputs = {"validation": bench.records.digest(ValidationRecord), "plan": bench.records.digest(PlanRecord)}

    def make() -> ScreenRecord:
        evaluation = bench.setup.evaluation
        baseline, tolerance = evaluation.baseline or bench.records.require(PlanRecord).baseline, evaluation.tolerance
        pools = bench.pools()
        baseline = baseline or median_branch(pools)
        apart = any(pool.apart for pool in pools)

        def verdicts_at(horizon: int | None) -> tuple[Verdict, ...]:
            return screen(pools, baseline=baseline, tolerance=tolerance, force=evaluation.force, horizon=horizon)

        verdicts = verdicts_at(None)
        if not any(v.admitted for v in verdicts):
            raise ScreenError(
                f"no branch passed the screen against {baseline!r}: raise evaluate.tolerance, or name some in "
                "evaluate.force"
            )
        return ScreenRecord(
            inputs=inputs,
            baseline=baseline,
            tolerance=tolerance,
            measured_on=f"probe of {evaluation.probe_tokens:,} tokens of training documents"
            f"{'' if evaluation.probe_source is None else f' of {evaluation.probe_source}'}, a mean over up to "
            f"{SMOOTHED} checkpoints"
            if bench.has_probe
            else "mean of the training losses that each run logged since its checkpoint before",
            verdicts=verdicts,
            early=tuple(
                screened_at(verdicts_at(tokens) if apart else verdicts, horizon=tokens, force=evaluation.force)
                for tokens in sorted({tokens for pool in pools for tokens in pool.positions})
            ),
        )

    return bench.records.ensure(ScreenRecord, inputs, make)
