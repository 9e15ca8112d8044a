"""One trajectory and several: weights over the window of each branch, and the mean of these anchors over branches.

    Freedom, weigh -> for every stop: weigh(newest checkpoints of each branch) / N -> options -> the best

A stop of one branch is the method as its authors have it; a stop of N branches is the second level of the paper.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from trajsoup.core.methods.asking import Asking, Option, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.pool import Candidate, Pool, Unit
from trajsoup.core.window import Window, newest
from trajsoup.errors import SelectionError

Weigh = Callable[[Sequence[Candidate]], Sequence[float]]  # in order of tokens, the newest last
UNEVEN = 1.01  # the longest spacing over the shortest from which on checkpoints count as unevenly spaced


def anchors(freedom: Freedom, weigh: Weigh, *, usual: int | None = None, notes: tuple[str, ...] = ()) -> Asking:
    """Choose among the stops: one anchor, or the mean of several. `usual` is the window where nobody gives one."""
    options = [anchored(freedom, stop, weigh, usual=usual) for stop in freedom.stops]
    found = yield from best_of(options, rank_by=freedom.rank_by, free=freedom.free)
    return replace(found, notes=(*notes, *found.notes))


def anchored(freedom: Freedom, stop: Stop, weigh: Weigh, *, usual: int | None = None) -> Option:
    """The mean of the branches' anchors at one stop."""
    pools = freedom.at(stop)
    weights: dict[str, float] = {}
    for pool in pools:
        window = in_window(freedom, pool, usual=usual)
        for candidate, weight in zip(window, weigh(window), strict=True):
            weights[candidate.key] = weights.get(candidate.key, 0.0) + weight / len(pools)
    return freedom.option({key: weight for key, weight in weights.items() if weight}, stop=stop)


def in_window(freedom: Freedom, pool: Pool, *, usual: int | None = None) -> tuple[Candidate, ...]:
    """The newest checkpoints of a branch. A usual window that is longer than the branch takes all there is."""
    if freedom.window is None and usual is not None:
        return newest(pool, Window(checkpoints=min(usual, max(len(pool.candidates), 1))))
    return newest(pool, freedom.window)


def require_tokens(freedom: Freedom, what: str, instead: str) -> None:
    """Refuse what is true only in tokens, where positions are steps or do not rise."""
    for pool in freedom.pools:
        if pool.unit is not Unit.TOKENS:
            raise SelectionError(
                f"{what} is derived from tokens, and of branch {pool.branch!r} only steps are known: pass "
                f"--tokens-per-step, a metrics.csv with a tokens column, or {instead}"
            )
        order = sorted(c.tokens for c in pool.candidates)
        if twice := next((a for a, b in itertools.pairwise(order) if a == b), None):
            raise SelectionError(
                f"{what} is derived from tokens, and branch {pool.branch!r} has two checkpoints at {twice:,}: correct the "
                "tokens, or leave one of the two out"
            )


def uneven(freedom: Freedom) -> str | None:
    """What there is to say where weights go by the number of a checkpoint and the spacing is not even."""
    for pool in freedom.pools:
        order = sorted(c.tokens for c in pool.candidates)
        gaps = [b - a for a, b in itertools.pairwise(order)]
        if gaps and max(gaps) > UNEVEN * min(gaps):
            return (
                f"checkpoints of {pool.branch} are {min(gaps):,} to {max(gaps):,} {pool.unit} apart, and these weights go "
                "by their number, not by tokens"
            )
    return None
