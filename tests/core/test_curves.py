"""Curves between two models: ends, continuity, and what the bend is worth at each point."""

import pytest

from trajsoup.core.curves import CURVE_GRID, CURVES, curve_rows, curve_shares
from trajsoup.core.soup import Row


@pytest.mark.parametrize("kind", CURVES)
def test_a_curve_begins_at_the_first_end_ends_at_the_second_and_its_shares_sum_to_one(kind):
    assert curve_shares(kind, 0.0) == (1, 0, 0)
    assert curve_shares(kind, 1.0) == (0, 0, 1)
    for t in CURVE_GRID:
        assert sum(curve_shares(kind, t)) == pytest.approx(1)
        assert min(curve_shares(kind, t)) >= 0


def test_the_chain_passes_through_its_bend_and_the_bezier_half_way_to_it():
    assert curve_shares("chain", 0.5) == (0, 1, 0)
    assert curve_shares("bezier", 0.5) == (0.25, 0.5, 0.25)
    assert curve_shares("chain", 0.25) == (0.5, 0.5, 0)


@pytest.mark.parametrize("kind", CURVES)
def test_a_bend_in_the_middle_of_the_segment_makes_a_chain_of_the_segment_itself(kind):
    first, second, bend = (Row(name=n, weights={n: 1.0}) for n in "acb")
    for t, row in zip(CURVE_GRID, curve_rows(first, bend, second, kind=kind), strict=True):
        straight = row.weights.get("c", 0) + row.weights.get("b", 0) / 2  # b = (a + c) / 2
        assert straight == pytest.approx(t)
        assert row.total == pytest.approx(1)
