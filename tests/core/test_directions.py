"""Geometry answers what it can and says what it cannot: single points, branches that stand still, tokens that never match."""

from __future__ import annotations

import numpy as np

from trajsoup.core.geometry import directions_of
from trajsoup.core.gram import WHOLE, Gram, Products
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.trajectory import merged_trajectories


def pool(branch: str, *tokens: int) -> Pool:
    return Pool(branch=branch, candidates=tuple(Candidate(key=f"{branch}{t}", branch=branch, tokens=t) for t in tokens))


def gram_of(pools, points) -> Gram:
    keys = tuple(c.key for p in pools for c in p.candidates)
    x = np.array(points, np.float64)
    products = Products(inner=x @ x.T, along_centre=np.zeros(len(x)), centre_square=1.0, elements=x.shape[1])
    return Gram(keys=keys, centre=None, groups={WHOLE: products})


def test_one_checkpoint_has_no_direction_and_it_is_said():
    pools = [pool("EXP1", 10)]
    window, interval, merged, notes = merged_trajectories(pools)
    assert (window, interval, notes) == (1, (10, 10), ())
    found, why = directions_of(gram_of(pools, [[1.0, 0.0]]), merged)
    assert found == []
    assert "'EXP1' has 1 merged point in the matched interval, and a direction needs two" in why[0]


def test_a_branch_that_stands_still_is_left_out_and_the_others_keep_their_directions():
    pools = [pool("EXP1", 10, 20), pool("EXP2", 10, 20)]
    _, _, merged, _ = merged_trajectories(pools)
    found, why = directions_of(gram_of(pools, [[1, 0], [2, 0], [0, 3], [0, 3]]), merged)
    assert [d.branch for d in found] == ["EXP1"]
    assert "'EXP2' does not move over the matched interval" in why[0]


def test_horizons_that_never_match_leave_no_interval_and_name_the_branches():
    window, interval, merged, notes = merged_trajectories([pool("EXP1", 10, 20), pool("EXP2", 30, 40)])
    assert interval is None
    assert merged == {}
    assert "share no token interval" in notes[0]
    assert window == 1


def test_the_window_is_the_papers_where_the_branches_have_as_many_checkpoints():
    window, interval, merged, _ = merged_trajectories(
        [pool("EXP1", *range(10, 90, 10)), pool("EXP2", *range(10, 70, 10))]
    )
    assert window == 4
    assert interval == (40, 60)
    assert [point.row.name for point in merged["EXP2"]] == ["EXP2@40", "EXP2@50", "EXP2@60"]
