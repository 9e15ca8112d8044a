import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.retention import Retention, peak_disk, prunable
from trajsoup.core.soup import soup_row
from trajsoup.errors import SelectionError


def pool_of(*losses, branch="EXP1"):
    candidates = tuple(
        Candidate(key=f"{branch}/{i}", branch=branch, tokens=100 * (i + 1), val_loss=loss)
        for i, loss in enumerate(losses)
    )
    return Pool(branch=branch, candidates=candidates)


def test_the_best_the_nth_and_the_last_stay():
    pool = pool_of(2.5, 2.1, 2.4, 2.3, 2.6, 2.7)
    assert prunable([pool], Retention(top_k=1)) == ("EXP1/0", "EXP1/2", "EXP1/3", "EXP1/4")
    assert prunable([pool], Retention(top_k=1, every_nth=3)) == ("EXP1/0", "EXP1/3", "EXP1/4")


def test_nothing_is_pruned_before_it_is_scored():
    assert prunable([pool_of(2.1, None, None, None, 2.5, None)], Retention(top_k=1)) == ("EXP1/4",)


def test_what_a_record_names_stays():
    pool = pool_of(2.5, 2.1, 2.4, 2.3)
    assert prunable([pool], Retention(top_k=1), needed={"EXP1/0"}) == ("EXP1/2",)


def test_the_nth_is_counted_from_the_fork_point_so_pruning_does_not_shift_it():
    pool = pool_of(2.5, 2.1, 2.4, 2.6, 2.3, 2.7)
    policy = Retention(top_k=1, every_nth=2)
    gone = set(prunable([pool], policy, checkpoint_every=100))
    rest = Pool(branch="EXP1", candidates=tuple(c for c in pool.candidates if c.key not in gone))
    assert gone
    assert prunable([rest], policy, checkpoint_every=100) == ()


losses = st.lists(st.floats(1, 3), min_size=1, max_size=12)


@given(st.lists(losses, min_size=1, max_size=3), st.integers(1, 4))
def test_a_soup_of_at_most_top_k_is_the_same_after_pruning_along_the_way(branches, k):
    """Prune after every checkpoint, as a study does; choose at the end."""
    whole = [pool_of(*values, branch=f"EXP{n}") for n, values in enumerate(branches)]
    policy, left = Retention(top_k=k), [[] for _ in whole]
    for step in range(12):
        for n, pool in enumerate(whole):
            left[n] += pool.candidates[step : step + 1]
            gone = set(prunable([Pool(branch=pool.branch, candidates=tuple(left[n]))], policy))
            left[n] = [c for c in left[n] if c.key not in gone]
    fits = min(len(pool.candidates) for pool in whole)
    pruned = [Pool(branch=p.branch, candidates=tuple(c)) for p, c in zip(whole, left, strict=True)]
    for use in range(1, min(k, fits) + 1):
        rows = [soup_row(pools, k=use, rule="top-k", name="soup").weights for pools in (whole, pruned)]
        assert rows[0] == rows[1]


def test_a_policy_that_keeps_nothing_is_refused():
    with pytest.raises(SelectionError, match="top_k=0"):
        Retention(top_k=0)


def test_the_peak_is_the_last_seed_whole_and_the_others_pruned():
    policy = Retention(top_k=4, every_nth=8)
    peak = peak_disk([24] * 5, policy=policy, seeds=3)
    assert (peak.without_policy, peak.with_policy, peak.afterwards) == (360, 120 + 2 * 40, 120)
    alone = peak_disk([24] * 5, policy=policy)
    assert (alone.without_policy, alone.with_policy, alone.afterwards) == (120, 120, 40)
