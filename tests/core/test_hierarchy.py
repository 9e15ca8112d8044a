"""The theory measured on simulated branches whose terms are known."""

import itertools

import numpy as np
import pytest

from trajsoup.core.estimators import SoupLosses
from trajsoup.core.hierarchy import measured_terms

DIMENSIONS, SAVED, N, KS = 300, 8, 5, (1, 2, 4, 8)
EVERY = 10


def simulated(*, r, between, unequal=False, seed=0):
    """Losses of every soup of branches around the minimum: V_intra = 150, V_inter = 150 between."""
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal
    theta = []
    for n in range(N):
        points = [draw(DIMENSIONS)]
        for _ in range(SAVED - 1):
            points.append(r * points[-1] + np.sqrt(1 - r**2) * draw(DIMENSIONS))
        own = np.sqrt(between) * draw(DIMENSIONS) * (3.0 if unequal and n == 0 else 1.0)
        theta.append(np.array(points) + own)
    loss = lambda x: 0.5 * float(x @ x)  # noqa: E731
    names = [f"EXP{n + 1}" for n in range(N)]
    soups = {}
    for k, size in itertools.product(KS, range(1, N + 1)):
        for chosen in itertools.combinations(range(N), size):
            mean = np.mean([theta[n][:k].mean(axis=0) for n in chosen], axis=0)
            soups[frozenset(names[n] for n in chosen), k] = loss(mean)
    ranks = {name: [loss(x) for x in points] for name, points in zip(names, theta, strict=True)}
    return SoupLosses(soups=soups, ranks=ranks), dict.fromkeys(names, tuple(EVERY * j for j in range(SAVED)))


@pytest.mark.parametrize("r", [0.0, 0.7])
def test_the_terms_are_those_of_the_simulation_and_add_up_to_the_measured_levels(r):
    found = measured_terms(*simulated(r=r, between=0.5), k=8)
    half = DIMENSIONS / 2
    truth = 64 / sum(r ** abs(i - j) for i in range(8) for j in range(8))
    assert found.v_intra == pytest.approx(half, rel=0.15)
    assert found.k_eff["8"] == pytest.approx(truth, rel=0.25)
    assert found.v_inter == pytest.approx(0.5 * half, rel=0.35)
    for name, level in found.levels.items():
        assert level.predicted == pytest.approx(level.measured, rel=0.2), name
    order = [found.levels[name].measured for name in ("rank-1", "intra", "trajectory-soup")]
    assert order == sorted(order, reverse=True)
    assert all(change < 0 for change in found.increments.values())  # no bias: more checkpoints always help
    assert found.measured_k == 8


def test_equal_weights_are_nearly_right_for_branches_alike_and_not_for_others():
    alike = measured_terms(*simulated(r=0.0, between=0.5), k=8)
    unlike = measured_terms(*simulated(r=0.0, between=0.5, unequal=True), k=8)
    assert max(alike.best_weights.values()) < 0.3
    assert unlike.best_weights["EXP1"] < 0.08
    assert unlike.unequal_gain > 10 * alike.unequal_gain > 0
