"""Choose which checkpoints of each branch enter the soup (eq:topk-selection, app:merge-coefficients).

    pools -> ranking -> selection -> (coefficients.py) -> a row of W (soup.py)

Everything here is arithmetic on token positions and scores. No weight is read, so a selection can be
computed, tested and argued about before any merge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from trajsoup.core.pool import Candidate, Pool, ranked, require_scores
from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError


class Select(StrEnum):
    """Which elements of the candidate pools enter the average."""

    TOP_K = "top-k"  # the K best of each branch: the paper's default
    GLOBAL = "global"  # the N*K best of all branches together
    TAIL_K = "tail-k"  # the K latest of each branch
    ALL = "all"  # every candidate: Full Soup
    FINAL = "final"  # the last of each branch: Model Soup


POOLED = frozenset({Select.GLOBAL, Select.ALL})  # averaged over checkpoints, not over branches
RANKED = frozenset({Select.TOP_K, Select.GLOBAL})
NEEDS_K = frozenset({Select.TOP_K, Select.GLOBAL, Select.TAIL_K})


def select(
    pools: Sequence[Pool], *, rule: Select, k: int | None, horizon: int | None = None, rank_by: Signal = Signal.LOSS
) -> tuple[tuple[Candidate, ...], ...]:
    """Return the chosen candidates, best first: one group per branch, or a single group for a pooled rule."""
    if rule in NEEDS_K and (k is None or k < 1):
        raise SelectionError(
            f"selection {rule.value!r} needs the number of checkpoints per branch: pass --k, 4 in the paper"
        )
    pools = [_usable(pool) for pool in pools]
    for pool in pools:
        if not pool.until(horizon).candidates:
            by = "" if horizon is None else f" by {horizon:,} {pool.unit}"
            raise SelectionError(f"branch {pool.branch!r} has no checkpoint{by}: extend the horizon or drop the branch")
    if rule in RANKED:  # of all branches at once, so that one message counts them all
        require_scores([c for pool in pools for c in pool.until(horizon).candidates], rank_by=rank_by)
    match rule:
        case Select.TOP_K:
            assert k is not None
            return tuple(top_k(pool, k=k, horizon=horizon, rank_by=rank_by) for pool in pools)
        case Select.GLOBAL:
            assert k is not None
            everything = Pool(branch="all branches", candidates=tuple(c for pool in pools for c in pool.candidates))
            return (top_k(everything, k=k * len(pools), horizon=horizon, rank_by=rank_by),)
        case Select.TAIL_K:
            assert k is not None
            return tuple(tail_k(pool, k=k, horizon=horizon) for pool in pools)
        case Select.ALL:
            return (tuple(c for pool in pools for c in latest_first(pool.until(horizon))),)
        case Select.FINAL:
            return tuple(latest_first(pool.until(horizon))[:1] for pool in pools)


def top_k(pool: Pool, *, k: int, horizon: int | None = None, rank_by: Signal = Signal.LOSS) -> tuple[Candidate, ...]:
    """Return the K best checkpoints saved by `horizon`, best first.

    This is I_n(t, K) of eq:topk-selection: for a subset of fixed size, minimising the sum means sorting.
    """
    eligible = ranked(pool.until(horizon).candidates, rank_by=rank_by)
    _require(pool, have=len(eligible), k=k, horizon=horizon)
    return eligible[:k]


def tail_k(pool: Pool, *, k: int, horizon: int | None = None) -> tuple[Candidate, ...]:
    """Return the K latest checkpoints saved by `horizon`, latest first."""
    eligible = latest_first(pool.until(horizon))
    _require(pool, have=len(eligible), k=k, horizon=horizon)
    return eligible[:k]


def latest_first(pool: Pool) -> tuple[Candidate, ...]:
    """Return the candidates in falling order of tokens."""
    return tuple(sorted(pool.candidates, key=lambda c: c.tokens, reverse=True))


def _usable(pool: Pool) -> Pool:
    """Leave out checkpoints that scored NaN or infinity: they diverged, and no rule may take them."""
    scores = ((c, (c.val_loss, c.accuracy)) for c in pool.candidates)
    kept = tuple(c for c, values in scores if all(v is None or math.isfinite(v) for v in values))
    return Pool(branch=pool.branch, candidates=kept)


def _require(pool: Pool, *, have: int, k: int, horizon: int | None) -> None:
    if have < k:
        by = "" if horizon is None else f" by {horizon:,} {pool.unit}"
        raise SelectionError(
            f"branch {pool.branch!r} has {have} usable checkpoints{by}, but {k} are wanted: "
            "lower K, extend the horizon, or save checkpoints more often"
        )
