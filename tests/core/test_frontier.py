"""Compute accounting, frontier and annotations."""

from __future__ import annotations

import pytest

from trajsoup.core.frontier import (
    PAPER_FLOPS_PER_TOKEN,
    PAPER_RAW,
    PAPER_SOUP,
    SoupPoint,
    cost,
    frontier,
    quality_superiority,
    scaling_robustness,
    training_flops,
)
from trajsoup.core.scaling import ScalingFit
from trajsoup.core.signal import Signal
from trajsoup.errors import ScalingError

B = 10**9


def soup(compute: float, score: float, n: int = 2, k: int = 4) -> SoupPoint:
    return SoupPoint(compute=compute, score=score, n_branches=n, horizon=25 * B, k=k)


def test_the_compute_axis_is_the_papers():
    assert training_flops([25 * B], flops_per_token=PAPER_FLOPS_PER_TOKEN) == pytest.approx(
        PAPER_RAW.reference, rel=1e-4
    )
    assert training_flops([25 * B] * 2, flops_per_token=PAPER_FLOPS_PER_TOKEN) == pytest.approx(
        PAPER_SOUP.reference, rel=1e-4
    )
    assert training_flops([600 * B] * 4, flops_per_token=PAPER_FLOPS_PER_TOKEN) == pytest.approx(8.8178e22, rel=1e-4)


def test_the_cost_that_the_axis_leaves_out_has_columns_of_its_own():
    found = cost(
        [100, 200],
        searched=[100, 200, 200],
        flops_per_token=6.0,
        checkpoints=12,
        bytes_per_checkpoint=10,
        validation_passes=15,
        validation_tokens=4,
        merged=8,
        soups=3,
    )
    assert found.training_flops == 1800
    assert found.validation_flops == pytest.approx(15 * 4 * 2)
    assert (found.search_tokens, found.search_flops) == (500, 3000)
    assert found.validation_share == pytest.approx(120 / 3000)
    assert (found.checkpoint_bytes, found.merge_read_bytes, found.merge_write_bytes) == (120, 80, 30)


def test_the_frontier_keeps_the_best_soup_at_each_compute():
    some = [soup(2, 68.0), soup(2, 68.5, k=2), soup(4, 68.2), soup(3, 69.0), soup(3, 69.0, n=3)]
    assert [(p.compute, p.score, p.n_branches) for p in frontier(some)] == [(2, 68.5, 2), (3, 69.0, 2), (4, 68.2, 2)]
    assert [p.compute for p in frontier(some, improving=True)] == [2, 3]
    assert [p.score for p in frontier(some, rank_by=Signal.LOSS)] == [68.0, 69.0, 68.2]
    assert frontier([]) == ()


def fits() -> tuple[ScalingFit, ScalingFit]:
    def at(law, low, high) -> ScalingFit:
        return ScalingFit(computes=(low, high), measured=(0.0, 0.0), rank_by=Signal.ACCURACY, law=law)

    return at(PAPER_RAW, 9.1852e20, 1.5615e22), at(PAPER_SOUP, 1.8370e21, 8.8178e22)


def test_the_two_annotations_of_the_papers_figure():
    raw, soups = fits()
    quality = quality_superiority(raw, soups, compute=3.6741e21)
    assert (round(quality.raw_score, 2), round(quality.soup_score, 2)) == (66.52, 68.36)
    assert quality.gain == pytest.approx(68.36 - 66.52, abs=0.01)
    assert not quality.raw_extrapolated
    robust = scaling_robustness(raw, soup(8.8178e22, 69.03, n=4), compute=2.2044e22)
    assert round(robust.raw_score, 2) == 66.92
    assert robust.raw_extrapolated
    assert robust.gain == pytest.approx(69.03 - 66.92, abs=0.01)
    with pytest.raises(ScalingError, match="choose a soup of larger compute"):
        scaling_robustness(raw, soup(1e21, 69.03), compute=2.2044e22)
