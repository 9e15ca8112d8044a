import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.core.pool import Candidate, Pool, ranked
from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError

B = 10**9


def candidate(tokens: int, loss: float | None = None, *, branch: str = "EXP1", accuracy: float | None = None):
    return Candidate(key=f"{branch}/{tokens}", branch=branch, tokens=tokens, val_loss=loss, accuracy=accuracy)


def test_loss_ranks_low_first_and_accuracy_high_first():
    pool = (candidate(1, 2.3, accuracy=0.5), candidate(2, 2.1, accuracy=0.4), candidate(3, 2.2, accuracy=0.6))
    assert [c.tokens for c in ranked(pool, rank_by=Signal.LOSS)] == [2, 3, 1]
    assert [c.tokens for c in ranked(pool, rank_by=Signal.ACCURACY)] == [3, 1, 2]


@pytest.mark.parametrize("rank_by", Signal)
def test_ties_go_to_fewer_tokens_then_to_the_branch_name_whatever_the_file_order(rank_by):
    tied = [
        candidate(50, 2.0, accuracy=0.5, branch="EXP2"),
        candidate(50, 2.0, accuracy=0.5, branch="EXP1"),
        candidate(25, 2.0, accuracy=0.5, branch="EXP3"),
    ]
    for order in itertools.permutations(tied):
        assert [c.branch for c in ranked(order, rank_by=rank_by)] == ["EXP3", "EXP1", "EXP2"]


@given(st.lists(st.one_of(st.floats(), st.just(math.nan)), min_size=1, max_size=20))
def test_a_score_that_is_not_finite_is_never_ranked_and_the_rest_is_sorted(losses):
    found = ranked(tuple(candidate(i, loss) for i, loss in enumerate(losses)), rank_by=Signal.LOSS)
    assert [c.val_loss for c in found] == sorted(loss for loss in losses if math.isfinite(loss))


def test_missing_scores_are_counted_named_and_answered_with_a_remedy():
    pool = tuple(candidate(i * B, None if i > 1 else 2.0) for i in range(1, 7))
    with pytest.raises(SelectionError) as error:
        ranked(pool, rank_by=Signal.LOSS)
    message = str(error.value)
    assert "5 of 6 checkpoints have no validation loss" in message
    assert "EXP1@2,000,000,000" in message
    assert "..." in message
    assert "metrics.csv" in message
    assert "tail-k" in message


def test_missing_accuracy_is_called_accuracy():
    with pytest.raises(SelectionError, match=r"1 of 1 checkpoints have no accuracy \(EXP1@5\)"):
        ranked((candidate(5, 2.0),), rank_by=Signal.ACCURACY)


def test_the_pool_at_a_horizon_holds_what_was_saved_by_then():
    pool = Pool(branch="EXP1", candidates=tuple(candidate(i * B) for i in (25, 50, 75)))
    assert [c.tokens for c in pool.until(50 * B).candidates] == [25 * B, 50 * B]
    assert pool.until(None) == pool
    assert pool.until(0).candidates == ()


def test_a_run_apart_is_the_pool_of_its_own_horizon_and_of_no_other():
    full = tuple(candidate(tokens, 3.0) for tokens in (10, 20, 30, 40))
    short = tuple(replace(candidate(tokens, 2.0), key=f"A@20/{tokens}") for tokens in (10, 20))
    pool = Pool(branch="A", candidates=full, apart={20: short})
    assert pool.until(20).candidates == short
    assert pool.until(30).candidates == full[:3]
    assert pool.until(40).candidates == pool.until(None).candidates == full
    assert pool.positions == {20, 40}  # a soup may stop where a run ends, since there its schedule does too
    assert [len(run.candidates) for run in pool.runs] == [4, 2]
