"""K_eff from losses alone, on simulated branches whose correlation is known."""

import numpy as np
import pytest

from trajsoup.core.covariance import effective_count
from trajsoup.core.estimators import member_gap
from trajsoup.core.variogram import Gap, Variogram, fit_variogram, from_distances
from trajsoup.errors import TheoryError

K, DIMENSIONS, EVERY = 8, 400, 25
TRUTHS = {0.9: 1.29, 0.7: 2.09, 0.5: 3.20, 0.0: 8.00}  # correlation of neighbours -> K_eff(8)


def branch(rng, r, *, shared=0.0):
    """Checkpoints of a stationary branch, r^lag correlated, with something that all of them share."""
    points = [rng.standard_normal(DIMENSIONS)]
    for _ in range(K - 1):
        points.append(r * points[-1] + np.sqrt(1 - r**2) * rng.standard_normal(DIMENSIONS))
    return np.array(points) + np.sqrt(shared) * rng.standard_normal(DIMENSIONS)


def gaps(points, h):
    """What means of 2 to K checkpoints gain, as anchors of a study show it."""
    losses = [0.5 * float(h @ x**2) for x in points]
    found = []
    for k in range(2, K + 1):
        merged = 0.5 * float(h @ points[:k].mean(axis=0) ** 2)
        found.append(Gap(tokens=tuple(EVERY * j for j in range(k)), gap=member_gap(losses[:k], merged=merged)))
    return found


@pytest.mark.parametrize("r", TRUTHS)
@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_the_variogram_finds_the_effective_count_whatever_all_checkpoints_share(r, shared):
    rng = np.random.default_rng(0)
    h = np.linspace(0.5, 1.5, DIMENSIONS)
    truth = effective_count([[r ** abs(i - j) for j in range(K)] for i in range(K)])
    assert truth == pytest.approx(TRUTHS[r], abs=0.005)
    seen = [gap for _ in range(60) for gap in gaps(branch(rng, r, shared=shared), h)]
    found = fit_variogram(seen)
    assert found.k_eff([EVERY * j for j in range(K)]) == pytest.approx(truth, rel=0.05)
    assert found.v_intra == pytest.approx(h.sum() / 2, rel=0.08)


def test_exchangeable_checkpoints_are_independent_about_what_they_share():
    rng = np.random.default_rng(1)
    h = np.ones(DIMENSIONS)
    seen = [gap for _ in range(60) for gap in gaps(branch(rng, 0.0, shared=1.0), h)]  # correlation 0.5 at every lag
    found = fit_variogram(seen)
    assert found.k_eff([EVERY * j for j in range(K)]) == pytest.approx(8.0, rel=0.05)  # within; the rest is V_inter
    within, between = found.v_intra, DIMENSIONS / 2
    assert (within + between) / (within / 8 + between) == pytest.approx(
        1.78, rel=0.05
    )  # of a checkpoint's whole variance


def test_distances_of_checkpoints_say_the_same():
    rng = np.random.default_rng(2)
    seen = []
    for _ in range(40):
        x = branch(rng, 0.7)
        d = 0.5 * ((x[:, None] - x[None, :]) ** 2).sum(axis=2)
        seen += from_distances(d, [EVERY * j for j in range(K)])
    assert fit_variogram(seen).k_eff([EVERY * j for j in range(K)]) == pytest.approx(TRUTHS[0.7], rel=0.05)


def test_checkpoints_further_apart_count_for_more():
    found = Variogram(v_intra=1.0, length=50.0)
    assert found.k_eff([0, 10, 20]) < found.k_eff([0, 100, 200]) < 3
    assert Variogram(v_intra=1.0, length=0.0).k_eff([0, 10, 20]) == 3


def test_one_distance_or_no_variation_is_refused():
    with pytest.raises(TheoryError, match="at 1 distance from each other"):
        fit_variogram([Gap(tokens=(0, 10), gap=0.1)])
    with pytest.raises(TheoryError, match="gained nothing"):
        fit_variogram([Gap(tokens=(0, 10), gap=-0.1), Gap(tokens=(0, 10, 20), gap=-0.1)])
