import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.selection import SELECTIONS, select, tail_k, top_k
from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError

B = 10**9


def pool_of(*losses: float, branch: str = "EXP1") -> Pool:
    """A branch that saves every 25 B tokens."""
    return Pool(
        branch=branch,
        candidates=tuple(
            Candidate(key=f"{branch}/{i}", branch=branch, tokens=i * 25 * B, val_loss=loss, accuracy=1 - loss / 10)
            for i, loss in enumerate(losses, start=1)
        ),
    )


def tokens(candidates) -> list[int]:
    return [c.tokens // B for c in candidates]


def test_top_k_is_the_argmin_of_the_papers_definition():
    pool = pool_of(2.31, 2.27, 2.29, 2.25, 2.30)
    subsets = itertools.combinations(pool.candidates, 2)
    argmin = min(subsets, key=lambda subset: sum(c.val_loss for c in subset))
    assert set(top_k(pool, horizon=125 * B, k=2)) == set(argmin)


@given(
    losses=st.lists(st.integers(0, 50), min_size=1, max_size=8), k=st.integers(1, 8), by=st.integers(1, 8)
)  # whole numbers: sums are exact, and ties happen
def test_no_subset_of_size_k_has_a_lower_summed_loss(losses, k, by):
    pool, horizon = pool_of(*losses), by * 25 * B
    eligible = [c for c in pool.candidates if c.tokens <= horizon]
    if len(eligible) < k:
        with pytest.raises(SelectionError):
            top_k(pool, k=k, horizon=horizon)
        return
    chosen = top_k(pool, k=k, horizon=horizon)
    least = min(sum(c.val_loss for c in subset) for subset in itertools.combinations(eligible, k))
    assert sum(c.val_loss for c in chosen) == least
    assert set(chosen) <= set(eligible)


def test_an_impossible_k_names_the_branch_and_the_remedy():
    with pytest.raises(SelectionError, match=r"'EXP1' has 2 .*by 50,000,000,000 tokens.*lower K"):
        top_k(pool_of(2.3, 2.2, 2.1), horizon=50 * B, k=4)


def test_a_checkpoint_that_scored_nan_is_never_selected_and_does_not_count():
    pool = pool_of(2.3, math.nan, 2.1, math.inf)
    assert tokens(top_k(pool, k=2)) == [75, 25]
    with pytest.raises(SelectionError, match="has 2 usable checkpoints, but 3 are wanted"):
        top_k(pool, k=3)


def test_accuracy_selects_the_highest():
    assert tokens(top_k(pool_of(2.3, 2.1, 2.2), k=2, rank_by=Signal.ACCURACY)) == [50, 75]


def test_tail_k_takes_the_latest_without_a_score():
    unscored = Pool(
        branch="EXP1", candidates=tuple(Candidate(key=str(t), branch="EXP1", tokens=t * B) for t in (75, 25, 50))
    )
    assert tokens(tail_k(unscored, k=2)) == [75, 50]
    assert tokens(tail_k(unscored, k=1, horizon=60 * B)) == [50]


def test_top_k_keeps_the_branches_apart_where_global_pools_them():
    good, bad = pool_of(2.0, 2.1, 2.2, branch="EXP1"), pool_of(3.0, 3.1, 2.15, branch="EXP2")
    each = select([good, bad], rule="top-k", k=2)
    assert [[c.key for c in group] for group in each] == [["EXP1/1", "EXP1/2"], ["EXP2/3", "EXP2/1"]]
    (pooled,) = select([good, bad], rule="global", k=2)
    assert [c.key for c in pooled] == ["EXP1/1", "EXP1/2", "EXP2/3", "EXP1/3"]


def test_global_is_the_argmin_over_all_branches_together():
    pools = [pool_of(2.5, 2.1, 2.4, branch="EXP1"), pool_of(2.2, 2.3, 2.6, branch="EXP2")]
    (chosen,) = select(pools, rule="global", k=2)
    everything = [c for pool in pools for c in pool.candidates]
    argmin = min(itertools.combinations(everything, 4), key=lambda subset: sum(c.val_loss for c in subset))
    assert set(chosen) == set(argmin)


def test_all_takes_every_checkpoint_and_final_the_last_of_each_branch():
    pools = [pool_of(2.5, 2.1, branch="EXP1"), pool_of(2.2, 2.3, 2.6, branch="EXP2")]
    (everything,) = select(pools, rule="all", k=None)
    assert len(everything) == 5
    assert [tokens(group) for group in select(pools, rule="final", k=None)] == [[50], [75]]
    assert [tokens(group) for group in select(pools, rule="final", k=None, horizon=25 * B)] == [[25], [25]]


@pytest.mark.parametrize("rule", [name for name, s in SELECTIONS.items() if s.needs_k])
@pytest.mark.parametrize("k", [None, 0, -1])
def test_a_rule_that_needs_k_says_so(rule, k):
    with pytest.raises(SelectionError, match=rf"'{rule}' needs the number of checkpoints per branch: pass --k"):
        select([pool_of(2.0)], rule=rule, k=k)


@pytest.mark.parametrize("rule", list(SELECTIONS))
def test_a_branch_without_a_checkpoint_by_the_horizon_is_named(rule):
    with pytest.raises(SelectionError, match=r"branch 'EXP1' has no checkpoint by 5 tokens: extend the horizon"):
        select([pool_of(2.0)], rule=rule, k=1, horizon=5)
