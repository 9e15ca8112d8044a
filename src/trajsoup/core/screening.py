r"""The compatibility screen: admit a branch when J(theta_n(t)) <= epsilon (sec:problem-formulation).

    training losses -> smoothed over a window -> J against tokens -> Verdict at the horizon
                                                                 \-> who passes at every earlier one (ScreenedAt)

J is the signed relative gap of smoothed training loss to the baseline at the same tokens. A branch *better* than
the baseline has a negative gap and is admitted; one that is better by more than the tolerance is marked, since a
training loss far below the baseline's may be overfitting.

J is measured, so it has a spread. Where the tolerance lies inside it, nobody can say on which side J is: the branch is
admitted and marked undecided. Without a named baseline it is the branch of median loss, so no order of naming decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from trajsoup.core.pool import Candidate, Pool, Unit
from trajsoup.errors import ScreenError, UncomparableError

TOLERANCE = 0.01  # epsilon of the paper
SPREAD = 2.0  # standard deviations of J that its spread reaches to each side, where many values tell what they are
# The same of 1, 2, ... values, where few tell what one is: 95 % of Student's t, without scipy.
OF_FEW = (4.30, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
LIKE = 2.0  # losses that are means of stretches this many times apart in length are not alike
SMOOTHED = 4  # checkpoints on the probe that a training loss is a mean over
LAST = 7  # values of J, up to a position, that tell its noise there


class Noise(StrEnum):
    """Where the larger part of J's spread was seen, and what would make it smaller."""

    PIECES = "pieces of the probe"
    LOGGED = "logged losses"
    CHECKPOINTS = "the last checkpoints"
    WINDOWS = "losses smoothed over different lengths"

    @property
    def cure(self) -> str:
        """What would decide an undecided branch."""
        return {
            Noise.PIECES: "a larger probe (evaluate.probe_tokens)",
            Noise.LOGGED: "losses logged more often, or a probe of the same documents for all (trajsoup run)",
            Noise.CHECKPOINTS: "more checkpoints, or training on until J settles",
            Noise.WINDOWS: "the checkpoints that were deleted, or a probe of the same documents for all (trajsoup run)",
        }[self]


def reach(count: int) -> float:
    """How many standard deviations to each side a spread reaches, if as many differences tell what one is.

    One difference counts as two: Student's 12.7 would let everything pass.
    """
    return OF_FEW[count - 1] if count <= len(OF_FEW) else SPREAD


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
    spread: float | None = None  # J may lie this far to either side; None: nothing tells
    spreads: tuple[float | None, ...] = ()  # the same at every position of `gaps`
    noise: Noise | None = None  # what showed the spread

    @property
    def undecided(self) -> bool:
        """Whether the tolerance lies within the spread of J: admitted, but the screen cannot tell."""
        return _is_undecided(self.loss_gap, self.spread, self.tolerance)

    @property
    def word(self) -> str:
        """What becomes of the branch."""
        if self.forced or not self.admitted:
            return "forced in" if self.forced else "rejected"
        return "undecided: admitted" if self.undecided else "admitted"

    @property
    def gap(self) -> str:
        """J in words, with its spread."""
        if self.spread is None:
            return f"{self.loss_gap:+.2%}" + (", spread unknown" if self.loss_gap else "")  # exactly 0: the baseline
        return f"{self.loss_gap:+.2%} ± {self.spread:.2%}"


def smoothed(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The loss on the probe as a mean over each checkpoint and the few before it, since one checkpoint alone jumps."""
    found: list[Candidate] = []
    kept: list[float] = []
    for c in candidates:
        kept = [*kept, *([] if c.train_loss is None else [c.train_loss])][-SMOOTHED:]
        found.append(c if c.train_loss is None else replace(c, train_loss=math.fsum(kept) / len(kept)))
    return tuple(found)


def screen(
    pools: Sequence[Pool],
    *,
    baseline: str | None = None,
    tolerance: float = TOLERANCE,
    horizon: int | None = None,
    force: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """Compare every branch with the baseline at the last tokens both have reached by the horizon.

    Branches need not save at the same tokens (their batches differ): the baseline's loss is interpolated linearly
    between its checkpoints, never extrapolated. `force` names branches to admit whatever the screen says.

    >>> [(v.branch, v.admitted) for v in screen(pools, tolerance=0.01)]  # doctest: +SKIP
    """
    _require_positions(pools, horizon)
    baseline = median_branch(pools, horizon=horizon) if baseline is None else baseline
    curves = {pool.branch: _curve(pool.until(horizon)) for pool in pools}
    if baseline not in curves:
        raise ScreenError(
            f"the baseline {baseline!r} is none of the branches {', '.join(curves)}: choose one of them (--baseline)"
        )
    if unknown := sorted(set(force) - set(curves)):
        raise ScreenError(f"cannot force in {', '.join(unknown)}: the branches are {', '.join(curves)}")
    reference = curves[baseline]
    if not reference:
        raise UncomparableError(
            f"the baseline {baseline!r} has no training loss, so no branch can be compared with it: supply it "
            "(trainer_state.json, or a train_loss column in metrics.csv)"
        )
    return tuple(
        _verdict(
            pool.branch,
            curves[pool.branch],
            reference,
            baseline=baseline,
            tolerance=tolerance,
            force=pool.branch in force,
            unit=pool.unit,
        )
        for pool in pools
    )


def median_branch(pools: Sequence[Pool], *, horizon: int | None = None) -> str:
    """The branch of median training loss where all were last together; of two middle ones the better.

    A branch without a loss counts as the worst, so that its own message names it.
    """
    curves = {pool.branch: _curve(pool.until(horizon)) for pool in pools}
    at = min((curve[-1].tokens for curve in curves.values() if curve), default=0)

    def loss(curve: list[Candidate]) -> float:
        if not curve:
            return math.inf
        found = _interpolated(curve, [at], lambda c: c.train_loss or 0.0)[0] if curve[0].tokens <= at else math.nan
        return math.inf if math.isnan(found) else found

    ordered = sorted((loss(curve), branch) for branch, curve in curves.items())
    return ordered[(len(ordered) - 1) // 2][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedAt:
    """The screen at one horizon t: who may enter a soup whose branches stop there."""

    horizon: int
    admitted: tuple[str, ...]
    loss_gaps: Mapping[str, float | None]  # J(theta_n(t)); None: the branch has no finite loss by then
    undecided: tuple[str, ...] = ()  # of those admitted: the tolerance lies within the spread of J


def screened_at(verdicts: Sequence[Verdict], *, horizon: int, force: Collection[str] = ()) -> ScreenedAt:
    """Read the screen at an earlier horizon off J against tokens: at the last tokens that were compared by then.

    A branch that ended before the horizon has no theta_n(t): it is not admitted there, unless the full screen admits it
    where it ended.
    """
    last = {
        v.branch: next((i for i in reversed(range(len(v.gaps))) if v.gaps[i][0] <= horizon), None) for v in verdicts
    }
    at = {v.branch: _at(v, last[v.branch]) for v in verdicts}
    reached = {v.branch for v in verdicts if v.admitted or (v.gaps and v.gaps[-1][0] >= horizon)}
    admitted = [
        v.branch for v in verdicts if v.branch in force or (v.branch in reached and _passes(*at[v.branch], v.tolerance))
    ]
    return ScreenedAt(
        horizon=horizon,
        admitted=tuple(admitted),
        loss_gaps={branch: gap if math.isfinite(gap) else None for branch, (gap, _) in at.items()},
        undecided=tuple(
            v.branch for v in verdicts if v.branch in admitted and _is_undecided(*at[v.branch], v.tolerance)
        ),
    )


def _at(verdict: Verdict, place: int | None) -> tuple[float, float | None]:
    """J and its spread at one of the positions that were compared."""
    if place is None:
        return math.nan, None
    return verdict.gaps[place][1], verdict.spreads[place] if verdict.spreads else None


def _is_undecided(gap: float, spread: float | None, tolerance: float) -> bool:
    return spread is not None and abs(gap - tolerance) <= spread


def _passes(gap: float, spread: float | None, tolerance: float) -> bool:
    """J <= epsilon, or nobody can tell."""
    return gap <= tolerance or _is_undecided(gap, spread, tolerance)


def _require_positions(pools: Sequence[Pool], horizon: int | None) -> None:
    """A horizon before a branch's first checkpoint leaves nothing of it, which no loss could cure."""
    for pool in pools:
        if pool.candidates and not pool.until(horizon).candidates:
            first = min(c.tokens for c in pool.candidates)
            raise ScreenError(
                f"the horizon {horizon:,} lies before the first checkpoint of branch {pool.branch!r} (at {first:,} "
                f"{pool.unit}): choose one of {first:,} or more"
            )


def _curve(pool: Pool) -> list[Candidate]:
    return sorted((c for c in pool.candidates if c.train_loss is not None), key=lambda c: c.tokens)


def _interpolated(curve: Sequence[Candidate], at: Sequence[int], value: Callable[[Candidate], float]) -> list[float]:
    return [float(v) for v in np.interp(at, [c.tokens for c in curve], [value(c) for c in curve])]


def _verdict(
    branch: str,
    curve: list[Candidate],
    reference: list[Candidate],
    *,
    baseline: str,
    tolerance: float,
    force: bool,
    unit: Unit,
) -> Verdict:
    if not curve:
        raise UncomparableError(
            f"branch {branch!r} has no training loss, so it cannot be screened: supply it (trainer_state.json, or a "
            "train_loss column in metrics.csv)"
        )
    first, last = reference[0].tokens, reference[-1].tokens
    shared = [c for c in curve if first <= c.tokens <= last]
    if not shared:
        raise UncomparableError(
            f"branch {branch!r} (checkpoints at {curve[0].tokens:,} to {curve[-1].tokens:,} {unit}) and baseline "
            f"{baseline!r} ({first:,} to {last:,}) were never at the same {unit}: check their counts"
        )
    positions = [c.tokens for c in shared]
    baselines = _interpolated(reference, positions, _loss)
    compared, expected = shared[-1], baselines[-1]
    if not math.isfinite(expected) or expected <= 0:
        raise UncomparableError(
            f"the baseline {baseline!r} has training loss {expected} at {compared.tokens:,} {unit}, and no relative gap to "
            "that exists: choose another --baseline"
        )
    usable = [i for i, base in enumerate(baselines) if base > 0 and math.isfinite(base)]
    gaps = [_loss(shared[i]) / baselines[i] - 1 for i in usable]
    own = branch != baseline  # the baseline's gap to itself is exactly zero
    noises = [_noise(gaps[: n + 1], shared[i], reference, baselines[i]) if own else {} for n, i in enumerate(usable)]
    spreads = [max(found.values(), default=None) for found in noises]
    gap, spread = gaps[-1], spreads[-1]
    passes = _passes(gap, spread, tolerance)
    return Verdict(
        branch=branch,
        admitted=passes or force,
        tokens=compared.tokens,
        loss=_loss(compared),
        baseline_loss=expected,
        loss_gap=gap,
        suspiciously_low=gap < -tolerance and (spread is None or gap + spread < -tolerance),
        tolerance=tolerance,
        window_tokens=compared.window_tokens,
        forced=force and not passes,
        gaps=tuple((positions[i], gap) for i, gap in zip(usable, gaps, strict=True)),
        unit=unit,
        spread=spread,
        spreads=tuple(spreads),
        noise=max(noises[-1], key=lambda kind: noises[-1][kind]) if noises[-1] else None,
    )


def _loss(candidate: Candidate) -> float:
    assert candidate.train_loss is not None
    return candidate.train_loss


def _noise(gaps: Sequence[float], at: Candidate, reference: Sequence[Candidate], base: float) -> dict[Noise, float]:
    """How far the last of `gaps` may lie to either side, by what shows it; the fewer the values, the farther.

    Over checkpoints by second differences, which a steady drift does not have: a branch that leaves is no noise. Over
    pieces of a probe that both were scored on, the gaps of the pieces, in pairs. Over logged losses, which are of different
    batches, both errors. Where one loss is the mean of a far longer stretch than the other, as that of the only checkpoint
    that was kept, all that the baseline's loss fell by in that stretch.
    """
    found: dict[Noise, float] = {}
    last = np.asarray(gaps[-LAST:])
    if len(last) > 2 and np.isfinite(last).all():
        changes = np.diff(last, n=2)
        leaves = len(changes) == 1  # a jump at the third and last position is no noise
        far = SPREAD if leaves else reach(len(changes))
        found[Noise.CHECKPOINTS] = far * float(np.sqrt(np.mean(changes**2) / 6))
    partner = next((c for c in reference if c.tokens == at.tokens), None)
    if partner is not None and len(at.train_pieces) == len(partner.train_pieces) > 1:
        pieces = np.asarray(at.train_pieces) / np.asarray(partner.train_pieces) - 1
        if np.isfinite(pieces).all():
            found[Noise.PIECES] = reach(len(pieces) - 1) * float(np.std(pieces, ddof=1) / np.sqrt(len(pieces)))
    nearest = min(reference, key=lambda c: abs(c.tokens - at.tokens))
    if at.train_error is not None and nearest.train_error is not None:
        found[Noise.LOGGED] = SPREAD * math.hypot(at.train_error, _loss(at) / base * nearest.train_error) / base
    lengths = [c.window_tokens for c in (at, nearest) if c.window_tokens]
    if len(lengths) == 2 and max(lengths) > LIKE * min(lengths):
        (before,) = _interpolated(reference, [at.tokens - max(lengths)], _loss)
        found[Noise.WINDOWS] = abs(before / base - 1)
    return {kind: value for kind, value in found.items() if math.isfinite(value)}
