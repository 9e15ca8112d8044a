"""Single EXP Merge: an anchor, the K best checkpoints of one branch."""

from __future__ import annotations

import math
from dataclasses import replace

from trajsoup.core.methods.asking import Asking, Decision, Option, best_of
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Alone, Scope, method
from trajsoup.core.pool import require_scores
from trajsoup.core.selection import TAIL_K, TOP_K
from trajsoup.errors import UnansweredError


@method(
    name="single-merge",
    label="Single-Trajectory Merge",
    reference="tab:exp-merge-mid-train",
    scope=Scope.ONE,
    select=TOP_K,
    selects=(TAIL_K, "all"),
    takes_k=True,
    takes_weights=True,
    alone=Alone(name="single", label="Single EXP Merge"),
)
def single_merge(freedom: Freedom) -> Asking:
    """The K best checkpoints of one branch, averaged: the branch whose merge validates best."""
    if len(freedom.stops) > 1:  # of all branches at once, so that one message counts them all
        every = {c.key: c for stop in freedom.stops for pool in freedom.at(stop) for c in pool.candidates}
        require_scores(list(every.values()), rank_by=freedom.rank_by)
    options = freedom.options(TOP_K)
    try:
        found = yield from best_of(options, rank_by=freedom.rank_by, free=freedom.free)
        why = "whose merge validates best"
    except UnansweredError:
        found = _by_ingredients(freedom, options)
        why = "whose K best checkpoints validate best on average"
    if len({option.branches for option in options}) == 1:
        return found
    return replace(found, notes=(f"single-merge takes branch {found.option.branches[0]!r}, {why}",))


def _by_ingredients(freedom: Freedom, options: tuple[Option, ...]) -> Decision:
    """Where no merge can be scored, the mean score of its checkpoints stands for it."""
    scores = {c.key: freedom.rank_by.cost(c.score(freedom.rank_by)) for pool in freedom.pools for c in pool.candidates}

    def cost(option: Option) -> tuple[float, tuple[str, ...]]:
        return math.fsum(scores[key] for key in option.weights) / len(option.weights), option.branches

    return Decision(option=min(options, key=cost), free=freedom.free, among=len(options), compared=options)
