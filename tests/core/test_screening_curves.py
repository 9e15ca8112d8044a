from dataclasses import replace

import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.screening import screen
from trajsoup.errors import ScreenError


def pool_of(branch, *losses):
    candidates = tuple(
        Candidate(key=f"{branch}{i}", branch=branch, tokens=100 * (i + 1), train_loss=loss)
        for i, loss in enumerate(losses)
    )
    return Pool(branch=branch, candidates=candidates)


BASELINE = pool_of("EXP1", 2.2, 2.1, 2.0)


def test_the_gap_against_tokens_is_kept_for_the_report():
    _, verdict = screen([BASELINE, pool_of("EXP2", 2.2, 2.0, 2.1)], baseline="EXP1")
    assert [tokens for tokens, _ in verdict.gaps] == [100, 200, 300]
    assert [gap for _, gap in verdict.gaps] == pytest.approx([0, 2.0 / 2.1 - 1, 0.05])
    assert verdict.gaps[-1][1] == verdict.loss_gap
    assert verdict.admitted
    assert verdict.undecided  # it jumps by more than it lies above the tolerance


def test_the_window_that_the_compared_loss_was_smoothed_over_is_recorded():
    other = pool_of("EXP2", 2.2, 2.0, 2.1)
    last = replace(other.candidates[-1], window_tokens=50)
    _, verdict = screen([BASELINE, replace(other, candidates=(*other.candidates[:2], last))], baseline="EXP1")
    assert verdict.window_tokens == 50
    assert screen([BASELINE, other], baseline="EXP1")[1].window_tokens is None


def test_the_baseline_has_no_gap_to_itself():
    (verdict,) = screen([BASELINE], baseline="EXP1")
    assert {gap for _, gap in verdict.gaps} == {0.0}


def test_a_rejected_branch_can_be_forced_in_and_stays_marked():
    pools = [BASELINE, pool_of("EXP2", 2.2, 2.1, 2.2), pool_of("EXP3", 2.2, 2.1, 2.0)]
    first, forced, fine = screen(pools, baseline="EXP1", force={"EXP2", "EXP3"})
    assert (forced.admitted, forced.forced) == (True, True)
    assert (fine.admitted, fine.forced) == (True, False)
    assert not first.forced
    with pytest.raises(ScreenError, match=r"force in EXP9: the branches are EXP1"):
        screen([BASELINE], baseline="EXP1", force={"EXP9"})


def test_a_branch_far_below_the_baseline_is_admitted_but_marked():
    _, low, near = screen([BASELINE, pool_of("EXP2", 1.6), pool_of("EXP3", 2.19)], baseline="EXP1")
    assert (low.admitted, low.suspiciously_low) == (True, True)
    assert (near.admitted, near.suspiciously_low) == (True, False)


def test_a_gap_of_exactly_the_tolerance_is_admitted():
    _, verdict = screen([pool_of("EXP1", 100.0), pool_of("EXP2", 101.0)], baseline="EXP1", tolerance=101.0 / 100.0 - 1)
    assert verdict.admitted
