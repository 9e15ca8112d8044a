"""Predictions from fits and pairs, and how they are judged."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from trajsoup.core.estimators import BranchFit
from trajsoup.core.prediction import HorizonLaw, agreement, best_count_falls, best_counts, predicted_loss
from trajsoup.errors import TheoryError


def fit(k: int, limit: float, spread: float) -> BranchFit:
    return BranchFit(k=k, branches=("A", "B"), limit=limit, spread=spread, measured={}, subsets=3)


def test_the_best_k_falls_as_branches_take_over_the_averaging():
    fits = {k: fit(k, limit=1 + 0.01 * (k - 1) ** 2, spread=0.5 / k + 0.1) for k in (1, 2, 3, 4)}
    found = best_counts(fits, n_branches=[1, 2, 4, 8, 100])
    for best in found:
        assert best.loss == min(f.loss(best.n_branches) for f in fits.values())
    assert best_count_falls(found)
    assert [best.k for best in found] == [3, 3, 2, 2, 1]
    rising = {1: fit(1, 1.0, 0.1), 2: fit(2, 0.9, 0.5)}
    assert not best_count_falls(best_counts(rising, n_branches=[1, 10]))
    with pytest.raises(TheoryError, match="no K was fitted"):
        best_counts({}, n_branches=[1])


def quadratic(seed: int, *, cubic: float = 0.0):
    rng = np.random.default_rng(seed)
    x = {name: rng.standard_normal(4) for name in "ABCD"}
    h = np.diag([3.0, 1.0, 0.5, 0.0])

    def loss(point):
        return 2 + 0.5 * point @ h @ point + cubic * float(np.sum(point**3))

    anchors = {name: loss(point) for name, point in x.items()}
    pairs = {frozenset(pair): loss((x[pair[0]] + x[pair[1]]) / 2) for pair in itertools.combinations("ABCD", 2)}
    return x, loss, anchors, pairs


def test_pairs_predict_every_weighted_soup_of_a_quadratic_exactly():
    x, loss, anchors, pairs = quadratic(0)
    for weights in (np.full(4, 0.25), np.array([0.7, 0.1, 0.1, 0.1]), np.array([1.5, -0.5, 0.5, -0.5])):
        soup = sum(w * x[name] for w, name in zip(weights, "ABCD", strict=True))
        found = predicted_loss(dict(zip("ABCD", weights, strict=True)), anchors=anchors, pairs=pairs)
        assert found == pytest.approx(loss(soup))
    assert predicted_loss({"A": 1.0}, anchors=anchors, pairs=pairs) == anchors["A"]


def test_a_loss_that_is_not_quadratic_is_found_out():
    def judged(cubic: float):
        x, loss, anchors, pairs = quadratic(1, cubic=cubic)
        subsets = [s for n in (3, 4) for s in itertools.combinations("ABCD", n)]
        predicted = [predicted_loss(dict.fromkeys(s, 1 / len(s)), anchors=anchors, pairs=pairs) for s in subsets]
        return agreement(predicted, [loss(sum(x[name] for name in s) / len(s)) for s in subsets])

    assert judged(0.0).worst == pytest.approx(0, abs=1e-12)
    assert judged(0.5).worst > 0.01


def test_a_prediction_says_what_it_lacks():
    _, _, anchors, pairs = quadratic(2)
    with pytest.raises(TheoryError, match="soup of A and B was not scored"):
        predicted_loss({"A": 0.5, "B": 0.5}, anchors=anchors, pairs={})
    with pytest.raises(TheoryError, match="sum to 2"):
        predicted_loss({"A": 1.0, "B": 1.0}, anchors=anchors, pairs=pairs)


def test_a_horizon_law_interpolates_in_log_tokens_and_never_beyond():
    law = HorizonLaw(fits={10: fit(2, 2.0, 0.4), 100: fit(2, 1.0, 0.2)})
    assert law.loss(2, tokens=10) == pytest.approx(2.2)
    assert law.loss(2, tokens=math.sqrt(1000)) == pytest.approx((2.2 + 1.1) / 2)
    assert law.loss(2, tokens=9) is None
    assert law.worth_of_tokens(2, tokens=10, more=90) == pytest.approx(1.1)
    assert law.worth_of_tokens(2, tokens=10, more=91) is None
    assert law.allocation(100, n_branches=[1, 2, 10, 20]) == pytest.approx(
        {1: 1.2, 2: law.loss(2, tokens=50), 10: 2.04}
    )


def test_agreement_measures_error_bias_and_share_explained():
    found = agreement([1.0, 2.0, 3.0], [1.1, 2.1, 3.1])
    assert found.mean_error == pytest.approx(0.1)
    assert found.root_mean_square == found.worst == pytest.approx(0.1)
    assert found.r_squared == pytest.approx(1 - 0.01 / (2 / 3))
    flat = agreement([1.0, 1.0], [1.0, 1.0])
    assert flat.r_squared is None
    with pytest.raises(TheoryError, match="1 predictions for 2"):
        agreement([1.0], [1.0, 2.0])
