import math

import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.reach import auto_k, reach_of, too_far
from trajsoup.core.signal import Signal


def pool(branch, *losses):
    return Pool(
        branch=branch,
        candidates=tuple(
            Candidate(key=f"{branch}/{i}", branch=branch, tokens=i + 1, val_loss=loss, accuracy=None)
            for i, loss in enumerate(losses)
        ),
    )


LOSS = {"rank_by": Signal.LOSS, "select": "top-k"}
STEEP = pool("steep", 3.14, 2.8, 2.6, 2.48)
FLAT = pool("flat", 2.01, 2.003, 2.0, 2.002, 2.001, 2.0, 2.004, 2.0)


def test_a_loss_that_still_falls_leaves_one_checkpoint_and_a_flat_one_all():
    assert auto_k([STEEP], **LOSS) == 1
    assert auto_k([FLAT], **LOSS) == 8


def test_k_is_what_every_branch_can_bear_and_has():
    assert auto_k([FLAT, STEEP], **LOSS) == 1
    assert auto_k([FLAT, pool("short", 2.0, 2.0)], **LOSS) == 2
    assert (
        auto_k([pool(str(i), *[2.0] * 9) for i in range(5)], **LOSS) == 3
    )  # five branches of three: at most 16 together


def test_the_members_may_lie_a_percent_above_the_best_on_average():
    assert reach_of(pool("a", 2.0, 2.04), k=2, **LOSS).above == pytest.approx(0.01)
    assert auto_k([pool("a", 2.0, 2.039)], **LOSS) == 2
    assert auto_k([pool("a", 2.0, 2.041)], **LOSS) == 1


def test_a_k_that_reaches_too_far_back_is_said_with_what_it_reaches_and_what_to_do():
    assert too_far([FLAT, STEEP], k=4, **LOSS) == (
        "validation loss is still falling: K = 4 reaches back to 3.14 on steep, the best single is 2.48, and averaging wins "
        "back about 1%: use K = 1, or train longer"
    )
    assert too_far([FLAT], k=4, **LOSS) is None
    assert "is uneven: K = 2" in too_far([pool("up", 2.0, 2.5)], k=2, **LOSS)


def test_without_scores_the_end_of_a_branch_gives_the_papers_four():
    assert auto_k([pool("a", *[None] * 9)], rank_by=Signal.LOSS, select="tail-k") == 4
    assert auto_k([pool("a", None, None)], rank_by=Signal.LOSS, select="tail-k") == 2
    assert too_far([pool("a", None, None)], k=2, **LOSS) is None


def test_the_tail_reaches_to_the_latest_not_to_the_best():
    late = pool("late", 2.0, 2.0, 2.0, 3.0)
    assert auto_k([late], **LOSS) == 3
    assert auto_k([late], rank_by=Signal.LOSS, select="tail-k") == 1


def test_what_diverged_is_no_member():
    assert auto_k([pool("a", 2.0, math.nan, 2.0)], **LOSS) == 2
