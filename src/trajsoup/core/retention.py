"""Which checkpoints may be deleted: those that can no longer enter any soup under study.

    pools with scores, policy, what records need -> keys to prune

A policy keeps the K best so far, every n-th and the last of each branch. Nothing is pruned before it is scored, for its
rank is not known; nothing that a record names; and with a branch still training the K best so far can only get better, so
one that is not among them never returns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from trajsoup.core.pool import Pool, ranked
from trajsoup.core.quantity import Count
from trajsoup.core.selection import usable
from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What to keep of each branch. The union counts."""

    # of top_k at least the largest K of any soup under study; every_nth is counted by position from the fork point, so
    # that pruning does not shift it; from the last a trainer resumes
    top_k: Annotated[Count, "Best checkpoints of each branch by validation that stay."]
    every_nth: Annotated[Count | None, "Besides, every n-th of each branch. Default: none for that reason."] = None
    last: Annotated[bool, "Besides, the last checkpoint of each branch."] = True

    def __post_init__(self) -> None:
        if self.top_k < 1 or (self.every_nth is not None and self.every_nth < 1):
            raise SelectionError(
                f"retention keeps top_k={self.top_k} and every_nth={self.every_nth}: both must be 1 or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakDisk:
    """Checkpoints on disk at the worst moment of a study."""

    without_policy: int
    with_policy: int
    afterwards: int  # with the policy, when the study is done


def prunable(
    pools: Sequence[Pool],
    policy: Retention,
    *,
    needed: Collection[str] = (),
    rank_by: Signal = Signal.LOSS,
    checkpoint_every: int | None = None,
) -> tuple[str, ...]:
    """Keys that `policy` gives up, in order of tokens within each branch. `needed` are keys that records name.

    `checkpoint_every` (tokens) tells which checkpoint is the n-th; without it they are counted as they are.
    """
    found: list[str] = []
    for pool in pools:
        in_order = sorted(pool.candidates, key=lambda c: c.tokens)
        scored = tuple(c for c in in_order if c.score(rank_by) is not None)
        keep = {c.key for c in ranked(scored, rank_by=rank_by)[: policy.top_k]} | set(needed)
        if policy.last and in_order:
            keep.add(in_order[-1].key)
        if policy.every_nth is not None:
            for place, c in enumerate(in_order, start=1):
                number = place if checkpoint_every is None else round(c.tokens / checkpoint_every)
                if number % policy.every_nth == 0:
                    keep.add(c.key)
        found += [c.key for c in scored if c.key not in keep]
    return tuple(found)


def still_needed(pool: Pool, *, stops: Sequence[int], top_k: int, rank_by: Signal = Signal.LOSS) -> set[str]:
    """Keys of a branch that trains which a row of top K and final checkpoints at one of these stops may still take.

    At a stop that it has passed, the K best by then are known for good. One that is not among the K best so far can be
    among those of no later stop. The last saved stays, and so does what has no score yet.
    """
    if not pool.candidates:
        return set()
    last = max(pool.candidates, key=lambda c: c.tokens)
    needed = {last.key} | {c.key for c in pool.candidates if c.score(rank_by) is None}
    sound = usable(pool)
    for stop in {*(s for s in stops if s <= last.tokens), last.tokens}:
        by_then = sound.until(stop).candidates
        scored = tuple(c for c in by_then if c.score(rank_by) is not None)
        needed |= {c.key for c in ranked(scored, rank_by=rank_by)[:top_k]}
        needed |= {c.key for c in by_then[-1:]}
    return needed


def peak_disk(runs: Sequence[int], *, policy: Retention, seeds: int = 1) -> PeakDisk:
    """Count checkpoints at the worst moment, from those of each run of a seed.

    The last seed has all of its own, the ones before what was kept of them.
    """
    nth = policy.every_nth
    kept = sum(min(policy.top_k + (0 if nth is None else n // nth) + int(policy.last), n) for n in runs)
    every = sum(runs)
    return PeakDisk(without_policy=seeds * every, with_policy=every + (seeds - 1) * kept, afterwards=seeds * kept)
