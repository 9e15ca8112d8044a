"""Choose which checkpoints of each branch enter the soup (eq:topk-selection, app:merge-coefficients): one table of rules.

    pools -> ranking -> selection -> (coefficients.py) -> a row of W (soup.py)

Everything here is arithmetic on token positions and scores. No weight is read, so a selection can be
computed, tested and argued about before any merge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trajsoup.core.pool import Candidate, Pool, ranked, require_scores
from trajsoup.core.signal import Signal
from trajsoup.core.table import Table
from trajsoup.errors import SelectionError

Groups = tuple[tuple[Candidate, ...], ...]  # averaged inside, then over groups
TOP_K, TAIL_K = "top-k", "tail-k"


class Rule(Protocol):
    """From pools without diverged checkpoints to groups of candidates; one group: averaged over checkpoints."""

    def __call__(self, pools: Sequence[Pool], *, k: int, horizon: int | None, rank_by: Signal) -> Groups:
        """`k` means something to rules that need one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A rule that says which elements of the candidate pools enter the average, and in which order."""

    name: str
    says: str  # in a few words
    reference: str  # label of the paper, or a citation
    rule: Rule
    needs_k: bool
    ranked: bool  # whether it looks at scores
    pooled: bool  # whether it forgets the branches: one group of all
    swept: bool  # whether the sweep over selections takes it


SELECTIONS: Table[Selection] = Table("selection", error=SelectionError)


def selection(
    *,
    name: str,
    says: str,
    reference: str = "app:merge-coefficients",
    needs_k: bool = False,
    ranked: bool = False,
    pooled: bool = False,
    swept: bool = True,
) -> Callable[[Rule], Rule]:
    """Register a rule.

    >>> @selection(name="first-k", says="the K earliest of each branch", needs_k=True)  # doctest: +SKIP
    ... def first_k(pools, *, k, horizon, rank_by): return [pool.until(horizon).candidates[:k] for pool in pools]
    """

    def register(rule: Rule) -> Rule:
        found = Selection(
            name=name,
            says=says,
            reference=reference,
            rule=rule,
            needs_k=needs_k,
            ranked=ranked,
            pooled=pooled,
            swept=swept,
        )
        SELECTIONS.add(name, found)
        return rule

    return register


def select(
    pools: Sequence[Pool], *, rule: str, k: int | None, horizon: int | None = None, rank_by: Signal = Signal.LOSS
) -> Groups:
    """Return the chosen candidates, best first: one group per branch, or a single group for a pooled rule."""
    chosen = SELECTIONS.find(rule)
    if chosen.needs_k and (k is None or k < 1):
        raise SelectionError(f"selection {rule!r} needs the number of checkpoints per branch: pass --k, 4 in the paper")
    pools = [usable(pool) for pool in pools]
    for pool in pools:
        if not pool.until(horizon).candidates:
            by = "" if horizon is None else f" by {horizon:,} {pool.unit}"
            raise SelectionError(f"branch {pool.branch!r} has no checkpoint{by}: extend the horizon or drop the branch")
    if chosen.ranked:  # of all branches at once, so that one message counts them all
        require_scores([c for pool in pools for c in pool.until(horizon).candidates], rank_by=rank_by)
    return chosen.rule(pools, k=k or 0, horizon=horizon, rank_by=rank_by)


@selection(name=TOP_K, says="the K best of each branch", reference="eq:topk-selection", needs_k=True, ranked=True)
def best_of_each(pools: Sequence[Pool], *, k: int, horizon: int | None, rank_by: Signal) -> Groups:
    """I_n(t, K) of every branch: the paper's default."""
    return tuple(top_k(pool, k=k, horizon=horizon, rank_by=rank_by) for pool in pools)


@selection(name="global", says="the N K best of all branches together", needs_k=True, ranked=True, pooled=True)
def best_of_all(pools: Sequence[Pool], *, k: int, horizon: int | None, rank_by: Signal) -> Groups:
    """Branches may be represented unequally."""
    everything = Pool(
        branch="all branches", candidates=tuple(c for pool in pools for c in pool.until(horizon).candidates)
    )
    return (top_k(everything, k=k * len(pools), horizon=horizon, rank_by=rank_by),)


@selection(name=TAIL_K, says="the K latest of each branch", needs_k=True)
def latest_of_each(pools: Sequence[Pool], *, k: int, horizon: int | None, rank_by: Signal) -> Groups:
    """Without a look at scores."""
    return tuple(tail_k(pool, k=k, horizon=horizon) for pool in pools)


@selection(name="all", says="every checkpoint", pooled=True)
def everything(pools: Sequence[Pool], *, k: int, horizon: int | None, rank_by: Signal) -> Groups:
    """Full Soup."""
    return (tuple(c for pool in pools for c in latest_first(pool.until(horizon))),)


@selection(name="final", says="the last of each branch", reference="eq:model-soup")
def last_of_each(pools: Sequence[Pool], *, k: int, horizon: int | None, rank_by: Signal) -> Groups:
    """Model Soup."""
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


def usable(pool: Pool) -> Pool:
    """Leave out checkpoints that scored NaN or infinity: they diverged, and no rule may take them."""
    return pool.over(
        lambda found: tuple(c for c in found if all(v is None or math.isfinite(v) for v in (c.val_loss, c.accuracy)))
    )


def _require(pool: Pool, *, have: int, k: int, horizon: int | None) -> None:
    if have < k:
        by = "" if horizon is None else f" by {horizon:,} {pool.unit}"
        raise SelectionError(
            f"branch {pool.branch!r} has {have} usable checkpoints{by}, but {k} are wanted: "
            "lower K, extend the horizon, or save checkpoints more often"
        )
