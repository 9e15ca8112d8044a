"""Paths between anchors: rows, best lambda, barrier, gains."""

from __future__ import annotations

import pytest

from trajsoup.core.interpolation import GRID, interpolation, interpolation_rows, parabola
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row
from trajsoup.errors import GeometryError

ENDS = {"first": "EXP1", "second": "EXP2", "tokens": 100}


def test_rows_are_the_papers_convex_combination():
    a, b = Row(name="a", weights={"x": 0.5, "y": 0.5}), Row(name="b", weights={"y": 1.0})
    first, middle, last = interpolation_rows(a, b, grid=(0.0, 0.5, 1.0))
    assert first.weights == a.weights
    assert middle.weights == {"x": 0.25, "y": 0.75}
    assert last.weights == b.weights


def test_a_convex_path_has_a_gain_and_no_barrier():
    path = interpolation([1 + (lam - 0.3) ** 2 for lam in GRID], **ENDS)
    assert path.best_lambda == 0.3
    assert path.best_score == 1
    assert path.barrier == 0
    assert path.gain_over_better_end == pytest.approx(0.09)
    assert path.gain_over_mean == pytest.approx((0.09 + 0.49) / 2)


def test_a_hump_is_a_barrier_above_the_line_between_the_ends():
    path = interpolation([1.0, 2.0, 1.4], grid=(0, 0.5, 1), **ENDS)
    assert path.barrier == pytest.approx(2.0 - 1.2)
    assert path.best_lambda == 0
    assert path.gain_over_better_end == 0


def test_accuracy_counts_the_other_way_round():
    path = interpolation([60, 64, 62], grid=(0, 0.5, 1), rank_by=Signal.ACCURACY, **ENDS)
    assert (path.best_lambda, path.gain_over_better_end, path.gain_over_mean, path.barrier) == (0.5, 2, 3, 0)
    dip = interpolation([60, 50, 62], grid=(0, 0.5, 1), rank_by=Signal.ACCURACY, **ENDS)
    assert dip.barrier == 11


def test_a_flat_path_says_so_and_names_the_middle():
    path = interpolation([2.0] * 11, **ENDS)
    assert path.flat
    assert path.best_lambda == 0.5
    assert path.gain_over_mean == path.barrier == 0


def test_a_quadratic_path_is_its_own_parabola():
    path = interpolation([1 + 3 * (lam - 0.4) ** 2 for lam in GRID], **ENDS)
    found = parabola(path)
    assert found.curvature == pytest.approx(6)
    assert found.best_lambda == pytest.approx(0.4)
    assert found.r_squared == pytest.approx(1)


def test_a_path_that_is_no_parabola_has_a_low_r_squared():
    hump = interpolation([1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1], **ENDS)
    assert parabola(hump).r_squared < 0.5
    assert parabola(hump).best_lambda is None
    with pytest.raises(GeometryError, match="grid of 3"):
        parabola(interpolation([1, 1, 1], grid=(0, 0.5, 1), **ENDS))


@pytest.mark.parametrize("grid", [(0.1, 1), (0, 0.5), (0, 0.5, 0.5, 1), (0,)])
def test_a_grid_without_its_ends_is_refused(grid):
    with pytest.raises(GeometryError, match="rise from 0 to 1"):
        interpolation([1.0] * len(grid), grid=grid, **ENDS)


def test_scores_must_be_complete_and_finite():
    with pytest.raises(GeometryError, match="2 scores for 11"):
        interpolation([1, 2], **ENDS)
    with pytest.raises(GeometryError, match=r"at lambda 0.5 scored nan"):
        interpolation([1, float("nan"), 2], grid=(0, 0.5, 1), **ENDS)


@pytest.mark.parametrize(
    ("scores", "instability", "worst", "stable"),
    [
        ((2.0, 2.5, 2.2), 0.4, 1, False),  # a barrier
        ((2.0, 1.9, 2.0), 0.0, 0, True),  # a valley: the highest is an end
        ((2.0, 2.01, 2.02), 0.01, 2, True),  # a slope: half of the difference, below 2 %
    ],
)
def test_instability_is_the_highest_loss_minus_the_mean_of_the_ends(scores, instability, worst, stable):
    path = interpolation(scores, first="a", second="b", tokens=1, grid=(0, 0.5, 1))
    assert path.instability == pytest.approx(instability)
    assert (path.worst, path.stable) == (worst, stable)


def test_of_accuracies_instability_is_two_points_of_error():
    near, far = (
        interpolation((0.8, middle, 0.8), first="a", second="b", tokens=1, grid=(0, 0.5, 1), rank_by=Signal.ACCURACY)
        for middle in (0.785, 0.775)
    )
    assert near.instability == pytest.approx(0.015)
    assert (near.stable, far.stable) == (True, False)
