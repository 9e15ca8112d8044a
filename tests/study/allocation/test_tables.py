"""Where adaptive studies look, and what a look knows."""

import math

import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.screening import screen
from trajsoup.errors import StudyError
from trajsoup.study.allocation.tables import course, look_positions

SAVED = [100 * i for i in range(1, 25)]


def test_looks_are_equal_parts_where_branches_saved_and_half_of_the_first():
    assert look_positions(SAVED, looks=4, fewest=1) == (300, 600, 1200, 1800, 2400)
    assert look_positions(SAVED, looks=5, fewest=1) == (200, 400, 900, 1400, 1900, 2400)


def test_no_look_comes_before_the_smallest_k_can_be_taken():
    assert look_positions(SAVED, looks=24, fewest=4)[0] == 400
    assert look_positions(SAVED, looks=4, fewest=4) == (600, 1200, 1800, 2400)
    with pytest.raises(StudyError, match="save more often, or lower it"):
        look_positions(SAVED[:3], looks=4, fewest=4)


def test_one_look_is_the_end_and_its_half():
    assert look_positions([100], looks=1, fewest=1) == (100,)
    assert look_positions(SAVED, looks=1, fewest=1) == (1200, 2400)


def test_j_is_relative_to_the_baseline_at_the_same_tokens_and_knows_nothing_later():
    probe = {("a", 100): 2.0, ("b", 100): 2.1, ("a", 200): 1.0, ("b", 200): 1.5, ("b", 300): 1.0, ("a", 300): None}
    pools = [
        Pool(
            branch=branch,
            candidates=tuple(
                Candidate(
                    key=f"{branch}{at}", branch=branch, tokens=at, train_loss=loss, train_pieces=(loss, loss * far)
                )
                for (name, at), loss in probe.items()
                if name == branch and loss is not None
            ),
        )
        for branch, far in (("a", 1.0), ("b", 1.2))
    ]
    first = course(pools, "b", probe, baseline="a", tokens=100)
    assert first.gaps == [(100, pytest.approx(0.05))]
    assert first.spread == screen([p.until(100) for p in pools], baseline="a")[1].spread > 0
    assert [at for at, _ in course(pools, "b", probe, baseline="a", tokens=900).gaps] == [100, 200]


def test_a_baseline_whose_loss_is_not_finite_lets_nobody_tell_how_far_j_may_be_off():
    probe = {("a", 100): 2.0, ("b", 100): 2.1, ("a", 200): float("nan"), ("b", 200): 1.5}
    pools = [
        Pool(
            branch=branch,
            candidates=tuple(
                Candidate(key=f"{branch}{at}", branch=branch, tokens=at, train_loss=loss)
                for (name, at), loss in probe.items()
                if name == branch
            ),
        )
        for branch in ("a", "b")
    ]
    assert course(pools, "b", probe, baseline="a", tokens=200).spread == math.inf
