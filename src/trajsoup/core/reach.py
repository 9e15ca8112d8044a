"""How far back an average may reach: K from the validation curves of the branches, where nobody names one.

    pools -> how far the K best lie above the best -> K, and a sentence where a given K reaches too far

Averaging wins back about a percent of the loss (docs/results.md: 0.045 nats of 3 within a run). A member that lies further
above the best than that costs more than it brings: on a loss that still falls steeply, that is every earlier checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.selection import TAIL_K
from trajsoup.core.signal import Signal

WON_BACK = 0.01  # the mean of the members may lie this far above the best: a share of the loss, or of accuracy
LARGEST_MERGE = 16  # N K; the paper's curves over the merge size are flat from 10 to 16
WITHOUT_SCORES = 4  # the paper's K


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far back the K first members of one branch reach."""

    branch: str
    k: int
    best: float
    worst: float
    improving: bool  # the best is the last: the branch had not levelled off
    above: float  # how far the mean of the members lies from the best: a share of the loss, or accuracy

    @property
    def too_far(self) -> bool:
        """Whether averaging cannot be expected to win that back."""
        return self.above > WON_BACK


def reach_of(pool: Pool, *, k: int, rank_by: Signal, select: str) -> Reach | None:
    """How far K reaches on one branch; None where scores are missing."""
    members = _members(pool, rank_by=rank_by, select=select)[:k]
    scores = [score for c in members if (score := c.score(rank_by)) is not None]
    known = [score for c in pool.candidates if (score := c.score(rank_by)) is not None and math.isfinite(score)]
    if len(scores) < k or not known:
        return None
    best = min(known, key=rank_by.cost)
    mean = math.fsum(scores) / len(scores)
    above = rank_by.sign * (mean - best)
    return Reach(
        branch=pool.branch,
        k=k,
        best=best,
        worst=max(scores, key=rank_by.cost),
        improving=max(pool.candidates, key=lambda c: c.tokens).score(rank_by) == best,
        above=above / abs(best) if rank_by is Signal.LOSS and best else above,
    )


def auto_k(pools: Sequence[Pool], *, rank_by: Signal, select: str) -> int:
    """The largest K that every branch has and whose members lie, on average, within what averaging wins back."""
    sizes = [len(_members(pool, rank_by=rank_by, select=select)) for pool in pools]
    most = max(min([LARGEST_MERGE // max(len(pools), 1), *sizes]), 1)
    for k in range(most, 1, -1):
        found = [reach_of(pool, k=k, rank_by=rank_by, select=select) for pool in pools]
        if None in found:
            return min(most, WITHOUT_SCORES)
        if not any(reach.too_far for reach in found if reach is not None):
            return k
    return 1


def too_far(pools: Sequence[Pool], *, k: int, rank_by: Signal, select: str) -> str | None:
    """Say that K reaches too far back, with what it reaches to and what to do; None where it does not."""
    found = [reach_of(pool, k=k, rank_by=rank_by, select=select) for pool in pools]
    far = [reach for reach in found if reach is not None and reach.too_far]
    if not far:
        return None
    worst = max(far, key=lambda reach: reach.above)
    way = "falling" if rank_by is Signal.LOSS else "rising"
    state = f"is still {way}" if worst.improving else "is uneven"
    better = auto_k(pools, rank_by=rank_by, select=select)
    return (
        f"validation {rank_by} {state}: K = {k} reaches back to {worst.worst:.4g} on {worst.branch}, the best single is "
        f"{worst.best:.4g}, and averaging wins back about {WON_BACK:.0%}: use K = {better}"
        f"{', or train longer' if worst.improving else ''}"
    )


def _members(pool: Pool, *, rank_by: Signal, select: str) -> list[Candidate]:
    """The checkpoints in the order in which a larger K takes them. What diverged is no candidate."""
    usable = [c for c in pool.candidates if (score := c.score(rank_by)) is None or math.isfinite(score)]
    if select == TAIL_K:
        return sorted(usable, key=lambda c: -c.tokens)
    return sorted(usable, key=lambda c: (rank_by.cost(c.score(rank_by)), c.tokens))
