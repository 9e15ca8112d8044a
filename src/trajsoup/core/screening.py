r"""The compatibility screen: admit a branch when J(theta_n(t)) <= epsilon (sec:problem-formulation).

    training losses -> smoothed over a window -> J against tokens -> Verdict at the horizon
                                                                 \-> who passes at every earlier one (ScreenedAt)

J is the signed relative gap of smoothed training loss to the baseline at the same tokens. A branch *better* than
the baseline has a negative gap and is admitted; one that is better by more than the tolerance is marked, since a
training loss far below the baseline's may be overfitting.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trajsoup.core.pool import Pool, Unit
from trajsoup.errors import ScreenError

TOLERANCE = 0.01  # epsilon of the paper


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the screen says of one branch."""

    branch: str
    admitted: bool
    tokens: int  # where the two losses were compared
    loss: float
    baseline_loss: float
    loss_gap: float  # J, signed and relative
    suspiciously_low: bool  # below the baseline by more than the tolerance: admitted, but look for overfitting
    tolerance: float = TOLERANCE
    window_tokens: int | None = None  # what the losses were smoothed over; None: as they were recorded
    forced: bool = False  # admitted by the user although the screen rejects it
    gaps: tuple[tuple[int, float], ...] = ()  # J against tokens
    unit: Unit = Unit.TOKENS  # of `tokens` and `gaps`

    @property
    def word(self) -> str:
        """What becomes of the branch."""
        return "forced in" if self.forced else "admitted" if self.admitted else "rejected"


def screen(
    pools: Sequence[Pool],
    *,
    baseline: str,
    tolerance: float = TOLERANCE,
    horizon: int | None = None,
    force: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """Compare every branch with the baseline at the last tokens both have reached by the horizon.

    Branches need not save at the same tokens (their batches differ): the baseline's loss is interpolated linearly
    between its checkpoints, never extrapolated. `force` names branches to admit whatever the screen says.
    """
    curves = {pool.branch: _curve(pool.until(horizon)) for pool in pools}
    if baseline not in curves:
        raise ScreenError(f"the baseline {baseline!r} is not among the branches {', '.join(curves)}: pass --baseline")
    if unknown := sorted(set(force) - set(curves)):
        raise ScreenError(f"cannot force in {', '.join(unknown)}: the branches are {', '.join(curves)}")
    reference = curves[baseline]
    if not reference:
        raise ScreenError(
            f"the baseline {baseline!r} has no training loss, so no branch can be compared with it: supply it "
            "(trainer_state.json, or a train_loss column in metrics.csv), or pass --no-screen"
        )
    return tuple(
        _verdict(
            pool.branch,
            curves[pool.branch],
            reference,
            baseline=baseline,
            tolerance=tolerance,
            force=pool.branch in force,
            windows={c.tokens: c.window_tokens for c in pool.candidates},
            unit=pool.unit,
        )
        for pool in pools
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedAt:
    """The screen at one horizon t: who may enter a soup whose branches stop there."""

    horizon: int
    admitted: tuple[str, ...]
    loss_gaps: Mapping[str, float | None]  # J(theta_n(t)); None: the branch has no finite loss by then


def screened_at(verdicts: Sequence[Verdict], *, horizon: int, force: Collection[str] = ()) -> ScreenedAt:
    """Read the screen at an earlier horizon off J against tokens: at the last tokens that were compared by then.

    A branch that ended before the horizon has no theta_n(t): it is not admitted there, unless the full screen admits it
    where it ended.
    """
    gaps = {v.branch: next((gap for at, gap in reversed(v.gaps) if at <= horizon), math.nan) for v in verdicts}
    reached = {v.branch for v in verdicts if v.admitted or (v.gaps and v.gaps[-1][0] >= horizon)}
    return ScreenedAt(
        horizon=horizon,
        admitted=tuple(
            v.branch for v in verdicts if v.branch in force or (v.branch in reached and gaps[v.branch] <= v.tolerance)
        ),
        loss_gaps={branch: gap if math.isfinite(gap) else None for branch, gap in gaps.items()},
    )


def _curve(pool: Pool) -> list[tuple[int, float]]:
    return sorted((c.tokens, c.train_loss) for c in pool.candidates if c.train_loss is not None)


def _verdict(
    branch: str,
    curve: list[tuple[int, float]],
    reference: list[tuple[int, float]],
    *,
    baseline: str,
    tolerance: float,
    force: bool,
    windows: Mapping[int, int | None],
    unit: Unit,
) -> Verdict:
    if not curve:
        raise ScreenError(
            f"branch {branch!r} has no training loss, so it cannot be screened: supply it (trainer_state.json, or a "
            "train_loss column in metrics.csv), or pass --no-screen"
        )
    first, last = reference[0][0], reference[-1][0]
    shared = [(tokens, loss) for tokens, loss in curve if first <= tokens <= last]
    if not shared:
        raise ScreenError(
            f"branch {branch!r} (checkpoints at {curve[0][0]:,} to {curve[-1][0]:,} {unit}) and baseline {baseline!r} "
            f"({first:,} to {last:,}) were never at the same {unit}: check their counts, or pass --no-screen"
        )
    positions = [t for t, _ in shared]
    baselines = np.interp(positions, [t for t, _ in reference], [value for _, value in reference])
    tokens, loss = shared[-1]
    expected = float(baselines[-1])
    if not math.isfinite(expected) or expected <= 0:
        raise ScreenError(
            f"the baseline {baseline!r} has training loss {expected} at {tokens:,} {unit}, and no relative gap to that "
            "exists: choose another --baseline, or pass --no-screen"
        )
    gap = loss / expected - 1
    passes = gap <= tolerance
    return Verdict(
        branch=branch,
        admitted=passes or force,
        tokens=tokens,
        loss=loss,
        baseline_loss=expected,
        loss_gap=gap,
        suspiciously_low=gap < -tolerance,
        tolerance=tolerance,
        window_tokens=windows[tokens],
        forced=force and not passes,
        gaps=tuple(
            (position, value / float(base) - 1)
            for (position, value), base in zip(shared, baselines, strict=True)
            if base > 0 and math.isfinite(base)
        ),
        unit=unit,
    )
