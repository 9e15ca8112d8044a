"""Recipes designed from probes: the algebra on exact quadratics, the picks on noisy descent."""

import itertools

import numpy as np
import pytest

from trajsoup.core.ahead import ahead, spearman
from trajsoup.core.design import (
    ProbeScores,
    best_set,
    candidate_sets,
    drawn_gaps,
    gaps_of,
    pool_of,
    set_gains,
    sureness,
)
from trajsoup.core.estimators import SoupLosses
from trajsoup.errors import TheoryError

DIMENSIONS, DOCUMENTS = 40, 60


def scores_of(points, *, curvature, pulls):
    """Losses of points and midpoints on documents that pull towards minima of their own."""

    def documents(x):
        return 2 + 0.5 * float(curvature @ x**2) - pulls @ (curvature * x)

    ends = np.array([documents(x) for x in points])
    pairs = itertools.combinations(range(len(points)), 2)
    return ProbeScores(
        names=tuple(f"p{i}" for i in range(len(points))),
        ends=ends,
        midpoints={(i, j): documents((points[i] + points[j]) / 2) for i, j in pairs},
        targets=np.ones(len(pulls)),
    )


def exact(points, *, seed=0, disagree=0.0):
    rng = np.random.default_rng(seed)
    curvature = 10 ** rng.uniform(-2, 0, DIMENSIONS)
    return scores_of(
        points, curvature=curvature, pulls=disagree * rng.standard_normal((DOCUMENTS, DIMENSIONS))
    ), curvature


def test_the_gap_of_a_pair_is_an_eighth_of_its_distance_in_curvature():
    points = np.random.default_rng(1).standard_normal((4, DIMENSIONS))
    scores, h = exact(points)
    found = gaps_of(scores)
    for i, j in itertools.combinations(range(4), 2):
        assert found.same[i, j] == pytest.approx(float(h @ (points[i] - points[j]) ** 2) / 8)
    assert found.losses[0] == found.losses[1] == 0


def test_rho_is_the_share_of_the_noise_that_the_order_of_the_data_makes():
    """A recipe that takes the baseline's noise whole, half of it, none of it."""
    rng = np.random.default_rng(2)
    size = 20_000
    u, v, w = rng.standard_normal((3, size))
    points = np.array([u, v, u, np.sqrt(0.5) * u + np.sqrt(0.5) * w, w])
    found = gaps_of(scores_of(points, curvature=np.ones(size) / size, pulls=np.zeros((3, size))))
    assert found.decorrelation[2] == pytest.approx(1.0, abs=1e-9)
    assert found.decorrelation[3] == pytest.approx(np.sqrt(0.5), abs=0.03)
    assert found.decorrelation[4] == pytest.approx(0.0, abs=0.03)


def test_orders_of_their_own_give_two_recipes_the_gap_that_one_factor_of_noise_predicts():
    rng = np.random.default_rng(3)
    size = 50_000
    u, other, third, a, b = rng.standard_normal((5, size))
    load_a, load_b = 0.9, 0.6
    points = np.array([u, other, load_a * u + 0.3 * a, load_b * u + 0.5 * b])
    found = gaps_of(scores_of(points, curvature=np.ones(size) / size, pulls=np.zeros((3, size))))
    mine, theirs = load_a * other + 0.3 * a, load_b * third + 0.5 * b
    assert found.apart()[2, 3] == pytest.approx(float(np.mean((mine - theirs) ** 2)) / 8, rel=0.03)
    assert found.apart()[0, 2] == pytest.approx(found.other[2], rel=1e-9)


def test_usefulness_is_what_the_midpoint_gains_over_the_better_of_the_two():
    points = np.random.default_rng(4).standard_normal((3, DIMENSIONS))
    scores, _ = exact(points)
    better = min(scores.ends[0].mean(), scores.ends[2].mean())
    assert gaps_of(scores).usefulness[2] == pytest.approx(better - scores.midpoints[0, 2].mean())


def test_the_promised_gain_of_a_set_is_that_of_its_mean():
    points = np.random.default_rng(5).standard_normal((5, DIMENSIONS))
    scores, h = exact(points)
    gaps = gaps_of(scores)
    pool = pool_of(gaps, n_branches=3, allowed=(2, 3, 4))
    as_probed = type(pool)(
        places=(0, 2, 3, 4), losses=gaps.losses[[0, 2, 3, 4]], gaps=gaps.same[np.ix_([0, 2, 3, 4], [0, 2, 3, 4])]
    )
    chosen = points[[0, 3, 4]]
    loss = lambda x: 0.5 * float(h @ x**2)  # noqa: E731
    expected = min(map(loss, chosen)) - loss(chosen.mean(axis=0))
    assert set_gains(as_probed, np.array([[0, 2, 3]]))[0] == pytest.approx(expected)


def test_the_best_set_is_the_best_of_all_and_holds_the_baseline():
    rng = np.random.default_rng(6)
    points = rng.standard_normal((7, DIMENSIONS)) * rng.uniform(0.2, 2, (7, 1))
    scores, _ = exact(points)
    pool = pool_of(gaps_of(scores), n_branches=3, allowed=range(2, 7))
    found = best_set(pool, n_branches=3)
    assert found.members[0] == 0
    sets = candidate_sets(pool, n_branches=3)
    assert found.gain == pytest.approx(set_gains(pool, sets).max())


def test_recipes_like_the_baseline_leave_orders_of_it_as_the_answer():
    """Nothing but noise of the data, and recipes that are worse by more than they bring: N orders are picked."""
    rng = np.random.default_rng(7)
    base, other = rng.standard_normal((2, DIMENSIONS))
    worse = [base + 4 * rng.standard_normal(DIMENSIONS) for _ in range(3)]
    scores, _ = exact(np.array([base, other, *worse]))
    pool = pool_of(gaps_of(scores), n_branches=3, allowed=(2, 3, 4))
    assert [pool.places[i] for i in best_set(pool, n_branches=3).members] == [0, 1, 1]


def test_documents_that_disagree_make_the_pick_unsure():
    rng = np.random.default_rng(8)
    points = rng.standard_normal((6, DIMENSIONS))
    shares = []
    for disagree in (0.0, 8.0):
        scores, _ = exact(points, disagree=disagree)
        gaps, draws = gaps_of(scores), drawn_gaps(scores, draws=100)
        pool = pool_of(gaps, n_branches=3, allowed=(2, 3, 4, 5))
        found = sureness(best_set(pool, n_branches=3), gaps, draws, n_branches=3, allowed=(2, 3, 4, 5))
        assert found.gain_low <= found.gain_high
        shares.append(found.same)
    assert shares[0] == 1.0
    assert shares[1] < 0.9


def test_a_midpoint_that_was_not_scored_is_refused():
    scores, _ = exact(np.zeros((3, DIMENSIONS)))
    with pytest.raises(TheoryError, match="score every pair"):
        ProbeScores(names=scores.names, ends=scores.ends, midpoints={}, targets=scores.targets)


def descend(*, order, steps, lr, momentum, curvature, start):
    """SGD with momentum on a bowl; the noise of a step is that of the data order."""
    data = np.random.default_rng(order)
    x, v = start.copy(), np.zeros(len(start))
    for _ in range(steps):
        v = momentum * v + curvature * x + 0.5 * data.standard_normal(len(start))
        x = x - lr * v
    return x


def designed(seed, *, probe=60, horizon=600, n=3, size=400):
    """Probes of a tenth on one order and a replicate; then every recipe to its end in an order of its own."""
    rng = np.random.default_rng(seed)
    bowl = {"curvature": 10 ** rng.uniform(-2, 0, size), "start": rng.standard_normal(size)}
    others = [{"lr": 0.1 * 2 ** rng.uniform(-1, 0.5), "momentum": rng.choice([0.0, 0.3])} for _ in range(6)]
    recipes = [{"lr": 0.1, "momentum": 0.0}] * 2 + others
    orders = [1, 2] + [1] * len(others)
    early = [descend(order=o, steps=probe, **r, **bowl) for o, r in zip(orders, recipes, strict=True)]
    scores = scores_of(np.array(early), curvature=bowl["curvature"], pulls=np.zeros((3, size)))
    found = best_set(pool_of(gaps_of(scores), n_branches=n, allowed=range(2, 8)), n_branches=n)
    late = [descend(order=100 + i, steps=horizon, **r, **bowl) for i, r in enumerate([recipes[0]] * n + others)]

    def gain(members):
        loss = lambda x: 0.5 * float(bowl["curvature"] @ x**2)  # noqa: E731
        return min(loss(late[i]) for i in members) - loss(np.mean([late[i] for i in members], axis=0))

    every = [gain((0, *rest)) for rest in itertools.combinations(range(1, len(late)), n - 1)]
    pairs = range(n, len(late))
    late_gaps = [float(bowl["curvature"] @ (late[0] - late[i]) ** 2) / 8 for i in pairs]
    agreement = spearman(gaps_of(scores).other[2:], late_gaps)
    return agreement, gain(found.members), max(every), np.mean(every)


def test_probes_rank_the_gaps_at_the_end_of_noisy_descents_and_pick_better_than_chance():
    """Thirty bowls, six recipes each. The pick gains more than the mean set, if less than hindsight."""
    found = np.array([designed(seed) for seed in range(30)], np.float64)
    agreement, mine, _, mean = found.mean(axis=0)
    assert agreement > 0.5
    assert mine > mean


def test_a_left_out_recipe_is_foretold_where_late_gaps_are_early_ones_scaled():
    names = [f"r{i}" for i in range(5)]
    rng = np.random.default_rng(9)
    gap = {frozenset(p): rng.uniform(0.1, 1) for p in itertools.combinations(names, 2)}

    def losses(scale):
        soups = {(frozenset([n]), 1): 2.0 for n in names}
        return SoupLosses(soups=soups | {(pair, 1): 2.0 - scale * g for pair, g in gap.items()})

    found = ahead(losses(1), losses(3), k_early=1, k_late=1, n_branches=2)
    assert found.spearman == pytest.approx(1)
    assert found.error == pytest.approx(0, abs=1e-12)
    assert found.error_of_mean > 0.1
    assert found.share_of_best == pytest.approx(1)


def test_ranks_of_few_or_equal_values_do_not_correlate():
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None
