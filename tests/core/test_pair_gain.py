"""Relative gain of pairs and its relation to the cosine."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from trajsoup.core.pair_gain import PairGain, pair_gain, rank_pairs, relate, relation_words
from trajsoup.core.signal import Signal
from trajsoup.errors import GeometryError


def pairs_of(cosines, gains) -> list[PairGain]:
    """Of as many branches as make so many pairs, or the first pairs of some more."""
    names = itertools.combinations("ABCDEFGHIJ"[: math.ceil((1 + math.sqrt(1 + 8 * len(cosines))) / 2)], 2)
    return [
        PairGain(first=a, second=b, cosine=c, gains={100: g}, left_out=())
        for (a, b), c, g in zip(names, cosines, gains, strict=False)
    ]


def test_gain_is_against_the_mean_of_the_ends_averaged_over_shared_horizons():
    found = pair_gain(
        {10: 66.0, 20: 68.0, 30: 70.0},
        ends=({10: 64.0, 20: 66.0}, {10: 66.0, 20: 67.0, 40: 1.0}),
        branches=("EXP1", "EXP2"),
        cosine=0.2,
    )
    assert found.gains == {10: 1.0, 20: 1.5}
    assert found.gain == 1.25
    assert found.left_out == (30, 40)


def test_a_loss_that_falls_is_a_gain():
    found = pair_gain({1: 2.0}, ends=({1: 2.5}, {1: 2.1}), branches=("A", "B"), cosine=0, rank_by=Signal.LOSS)
    assert found.gain == pytest.approx(0.3)


def test_horizons_that_never_match_are_refused():
    with pytest.raises(GeometryError, match="EXP1 and EXP2 have no horizon"):
        pair_gain({1: 2.0}, ends=({2: 2.5}, {1: 2.1}), branches=("EXP1", "EXP2"), cosine=0)


def test_the_relation_agrees_with_scipy():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 0.6, 10)
    y = 1 - 2 * x + 0.1 * rng.standard_normal(10)
    found = relate(pairs_of(x, y))
    line = stats.linregress(x, y)
    assert (found.slope, found.intercept) == (pytest.approx(line.slope), pytest.approx(line.intercept))
    assert found.pearson == pytest.approx(line.rvalue)
    assert found.spearman == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.missing is None


def test_the_band_covers_the_true_line_in_95_of_100_fits():
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 10)
    inside = 0
    for _ in range(2000):
        _, low, high = relate(pairs_of(x, 1 - x + 0.3 * rng.standard_normal(10))).line([0.8])
        inside += bool(low[0] <= 0.2 <= high[0])
    assert 0.935 < inside / 2000 < 0.965


def test_too_few_pairs_get_a_word_instead_of_a_number():
    found = relate(pairs_of([0.1], [1.0]))
    assert found.pearson is None
    assert "1 pairs are too few" in (found.missing or "")
    with pytest.raises(GeometryError, match="no line through 1 pairs"):
        found.line([0.1])


def test_equal_cosines_and_equal_gains_are_named():
    assert "same cosine" in (relate(pairs_of([0.1] * 4, [1, 2, 3, 4])).missing or "")
    flat = relate(pairs_of([0.1, 0.2, 0.3], [1.0, 1.0, 1.0]))
    assert flat.slope == 0
    assert flat.pearson is None
    assert "gain the same" in (flat.missing or "")


COSINES = {("EXP1", "EXP2"): 0.9, ("EXP1", "EXP3"): 0.1, ("EXP2", "EXP3"): 0.5, ("EXP1", "EXP4"): float("nan")}


def test_without_a_measured_line_pairs_are_ranked_by_how_little_they_agree():
    found = rank_pairs(COSINES)
    assert [pair.cosine for pair in found] == [0.1, 0.5, 0.9]
    assert all(pair.gain is None for pair in found)


def test_with_a_measured_line_pairs_are_ranked_by_the_gain_it_expects():
    rising = relate(pairs_of([0.0, 0.5, 1.0], [0.0, 1.0, 2.0]))
    found = rank_pairs(COSINES, relation=rising)
    assert [pair.cosine for pair in found] == [0.9, 0.5, 0.1]
    assert [pair.gain for pair in found] == pytest.approx([1.8, 1.0, 0.2])
    assert all(pair.low <= pair.gain <= pair.high for pair in found)


def test_too_few_measured_pairs_fall_back_to_the_cosine():
    assert rank_pairs(COSINES, relation=relate(pairs_of([0.0], [1.0])))[0].cosine == 0.1


def test_a_relation_is_put_into_words():
    cosines = np.array([0.0, 0.12, 0.2, 0.31, 0.4, 0.53, 0.6, 0.72, 0.8, 0.9])
    falling = relate(pairs_of(cosines, 1 - cosines))
    assert "the less two directions agree, the more their merge gains" in relation_words(falling)
    noise = relate(pairs_of([0.0, 0.2, 0.4], [1.0, 0.2, 0.3]))
    assert "no relation that these pairs could show" in relation_words(noise)
    assert "too few" in relation_words(relate([]))
