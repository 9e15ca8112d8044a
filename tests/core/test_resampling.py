"""The jackknife over branches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trajsoup.core.estimators import SoupLosses, components, fit_branches
from trajsoup.core.resampling import branch_jackknife
from trajsoup.errors import TheoryError

K, V_INTRA, V_INTER = 4, 1.0, 0.5
PARTS = {
    "b": (lambda losses: fit_branches(losses, k=K).spread, V_INTER + V_INTRA / K),
    "V_intra": (lambda losses: components(losses, k=K).v_intra, V_INTRA),
    "V_inter": (lambda losses: components(losses, k=K).v_inter, V_INTER),
    "one more branch": (lambda losses: fit_branches(losses, k=K).worth_of_branch(4), (V_INTER + V_INTRA / K) / 20),
}


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = dict(zip("ABCDE", [1.0, 3.0, 2.0, 5.0, 4.0], strict=True))
    found = branch_jackknife("ABCDE", lambda left: float(np.mean([values[b] for b in left])))
    assert found.estimate == 3
    assert found.standard_error == pytest.approx(np.std(list(values.values()), ddof=1) / np.sqrt(5))
    assert found.high - found.estimate == pytest.approx(2.7764451 * found.standard_error)
    with pytest.raises(TheoryError, match="2 branches"):
        branch_jackknife("AB", lambda left: 0.0)


def bowl(rng, branches: int, size: int = 12) -> tuple[tuple[str, ...], SoupLosses]:
    """Losses of every soup of branches whose checkpoints hover around means of their own, in a quadratic bowl."""
    centres = rng.standard_normal((branches, 1, size)) * np.sqrt(2 * V_INTER / size)
    points = centres + rng.standard_normal((branches, K, size)) * np.sqrt(2 * V_INTRA / size)
    names = tuple(f"EXP{i}" for i in range(branches))
    anchors = dict(zip(names, points.mean(axis=1), strict=True))
    subsets = (s for n in range(1, branches + 1) for s in itertools.combinations(names, n))
    soups = {(frozenset(s), K): float(np.sum(np.mean([anchors[name] for name in s], axis=0) ** 2)) / 2 for s in subsets}
    ranks = {name: (np.sum(x**2, axis=1) / 2).tolist() for name, x in zip(names, points, strict=True)}
    return names, SoupLosses(soups=soups, ranks=ranks)


@pytest.mark.parametrize("branches", [3, 5])
def test_intervals_over_branches_cover_the_variances(branches):
    rng = np.random.default_rng(branches)
    draws = [bowl(rng, branches) for _ in range(200)]
    for name, (statistic, truth) in PARTS.items():
        found = [
            branch_jackknife(names, lambda left, losses=losses, statistic=statistic: statistic(losses.only(left)))
            for names, losses in draws
        ]
        covered = np.mean([f.low <= truth <= f.high for f in found])
        assert 0.9 <= covered <= 0.985, (name, covered)
