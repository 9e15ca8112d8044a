"""J at the horizon from its increments: a steady drift is followed, noise is not, and the spread covers what comes."""

import math

import numpy as np
import pytest

from trajsoup.core.drift import drift


def path(values, *, every=100):
    return [((i + 1) * every, value) for i, value in enumerate(values)]


def test_a_straight_line_in_log_tokens_is_followed_exactly():
    tokens = [100, 200, 400, 800]
    found = drift([(t, 0.01 * math.log(t / 100)) for t in tokens], horizon=1600)
    assert found.expected == pytest.approx(0.01 * math.log(16))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.above(0.02) == pytest.approx(1)
    assert found.above(0.03) == pytest.approx(0)


def test_noise_without_a_drift_promises_what_the_last_values_say_together():
    values = [0.001, -0.001, 0.001, -0.001, 0.001, 0.0]
    found = drift(path(values), horizon=2000)
    assert found.expected == pytest.approx(0.00025, abs=1e-6)
    assert 0.0 < found.above(0.001) < 0.5


def test_two_values_and_what_is_not_finite_tell_nothing():
    assert drift(path([0.0, 0.1]), horizon=1000) is None
    assert drift([*path([0.0, 0.1]), (300, math.nan)], horizon=1000) is None


def test_the_probability_is_about_as_often_right_as_it_says():
    """Random walks with a drift of their own: of those that get 95 %, nearly all end above."""
    rng = np.random.default_rng(0)
    said, came = [], []
    for _ in range(3000):
        steps = np.diff(np.log(np.arange(100, 2100, 100)))
        walk = np.concatenate(
            [[0.0], np.cumsum(rng.normal(0, 0.01) * steps + 0.004 * np.sqrt(steps) * rng.normal(size=19))]
        )
        found = drift(path(walk[:8]), horizon=2000)
        said.append(found.above(0.01))
        came.append(walk[-1] > 0.01)
    said, came = np.array(said), np.array(came)
    sure = said > 0.95
    assert sure.sum() > 30
    assert came[sure].mean() > 0.9
    assert came[said < 0.05].mean() < 0.1
