import pytest

from trajsoup.core.positions import shared_positions
from trajsoup.errors import RecipeError

B = 10**9
LENGTH = 262_144


def test_positions_that_every_batch_divides_are_kept_exactly():
    positions = shared_positions(horizon=40_960, checkpoint_every=10_240, step_tokens={"A": 2048, "B": 1024})
    assert positions.all() == (10_240, 20_480, 30_720, 40_960)
    assert positions.horizon == 40_960


def test_the_papers_interval_moves_to_the_nearest_position_that_all_branches_reach():
    steps = {"EXP1": 256 * LENGTH, "EXP3": 128 * LENGTH}
    positions = shared_positions(horizon=600 * B, checkpoint_every=25 * B, step_tokens=steps)
    assert positions.count == 24
    assert abs(positions.checkpoint_every / (25 * B) - 1) < 0.002
    assert all(p % step == 0 for p in positions.all() for step in steps.values())


def test_a_horizon_that_is_no_multiple_of_the_interval_is_refused_with_the_nearest_ones():
    with pytest.raises(RecipeError, match=r"not a multiple .* use a horizon of 20 or 30"):
        shared_positions(horizon=25, checkpoint_every=10, step_tokens={"A": 5})


def test_batches_that_do_not_divide_the_interval_are_refused_with_what_would():
    with pytest.raises(RecipeError, match=r"do not divide checkpoint_every .* meet only every 8,064"):
        shared_positions(horizon=20_000, checkpoint_every=10_000, step_tokens={"A": 128, "B": 63 * 128})
