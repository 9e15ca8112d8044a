"""Merged points, matched intervals and horizons."""

from __future__ import annotations

import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.trajectory import matched_interval, merged_points
from trajsoup.errors import GeometryError


def pool(branch: str, *tokens: int, losses: tuple[float, ...] = ()) -> Pool:
    scores = losses or tuple(3 - 0.1 * i for i in range(len(tokens)))
    return Pool(
        branch=branch,
        candidates=tuple(
            Candidate(key=f"{branch}-{t}", branch=branch, tokens=t, val_loss=loss)
            for t, loss in zip(tokens, scores, strict=True)
        ),
    )


def test_a_tail_window_slides_along_the_trajectory():
    points = merged_points(pool("A", 10, 20, 30, 40), window=2)
    assert [p.tokens for p in points] == [20, 30, 40]
    assert points[1].row.weights == {"A-20": 0.5, "A-30": 0.5}


def test_top_k_points_are_the_anchors_at_each_horizon():
    points = merged_points(pool("A", 10, 20, 30, losses=(2.0, 3.0, 2.5)), rule="top-k", window=2)
    assert [sorted(p.row.weights) for p in points] == [["A-10", "A-20"], ["A-10", "A-30"]]


def test_the_interval_bounds_the_points_but_not_the_window_behind_them():
    points = merged_points(pool("A", 10, 20, 30, 40), window=3, interval=(30, 30))
    assert [sorted(p.row.weights) for p in points] == [["A-10", "A-20", "A-30"]]


def test_the_matched_interval_is_what_all_branches_share():
    assert matched_interval([pool("A", 10, 20, 30, 40), pool("B", 15, 25, 35)], window=2) == (25, 35)


def test_intervals_that_do_not_match_name_the_two_branches():
    with pytest.raises(GeometryError, match=r"'B' has merged points from 60 tokens on, 'A' only to 20"):
        matched_interval([pool("A", 10, 20), pool("B", 50, 60)], window=2)
    with pytest.raises(GeometryError, match=r"'A' has 1 checkpoints, fewer than the averaging window of 2"):
        matched_interval([pool("A", 10)], window=2)
    with pytest.raises(GeometryError, match="no branch"):
        matched_interval([])


def test_rules_that_give_no_trajectory_are_refused():
    with pytest.raises(GeometryError, match="'all' are not defined"):
        merged_points(pool("A", 10), rule="all")
    with pytest.raises(GeometryError, match="window is 0"):
        merged_points(pool("A", 10), window=0)
