import numpy as np
import pytest

from trajsoup.core.saturation import saturation


def curve(law, *, noise=0.0, n=20):
    rng = np.random.default_rng(0)
    return [(100.0 * (i + 1), law(100.0 * (i + 1)) + noise * rng.standard_normal()) for i in range(n)]


def test_a_run_that_falls_with_every_doubling_has_not_saturated():
    found = saturation(curve(lambda t: 3 - 0.1 * np.log(t), noise=0.001))
    assert not found.saturated
    assert found.per_tenth == pytest.approx(0.1 * np.log(1.1), rel=0.1)


def test_one_that_is_flat_or_rises_has():
    assert saturation(curve(lambda t: 2.5, noise=0.003)).saturated
    assert saturation(curve(lambda t: 2.5 + 1e-4 * t)).saturated
    assert saturation(curve(lambda t: 2 + np.exp(-t / 100))).saturated


def test_a_steady_fall_is_no_noise_and_noise_is_no_fall():
    steady = saturation(curve(lambda t: 3 - 1e-4 * t))
    assert steady.noise == pytest.approx(0, abs=1e-9)
    assert not steady.saturated
    assert saturation(curve(lambda t: 3 - 1e-6 * t, noise=0.05)).noise > 0.02


def test_few_points_and_points_of_the_second_half_alone_tell_nothing():
    assert saturation(curve(lambda t: 2.5, n=7)) is None
    assert saturation([(1000.0 + i, 2.0) for i in range(20)]) is None
