"""The best weights of the local quadratic model: exact where it is exact, and held to what unseen documents say."""

import itertools

import numpy as np
import pytest

from tests.quadratic_studies import simulated_study
from trajsoup.core.quadratic import LocalModel, from_pairs, from_products
from trajsoup.errors import SelectionError, TheoryError

STUDIES = 30


def points(seed=0, n=4, dimensions=6):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dimensions)), 10 ** rng.uniform(-1, 1, dimensions)


def test_pairs_give_the_loss_of_every_weighting_and_its_minimum():
    x, h = points()
    loss = lambda w: 1.5 + 0.5 * float(h @ (w @ x) ** 2)  # noqa: E731
    each = [loss(w) for w in np.eye(4)]
    pairs = {(i, j): loss((np.eye(4)[i] + np.eye(4)[j]) / 2) for i, j in itertools.combinations(range(4), 2)}
    model = from_pairs(each, pairs)
    w = np.array([0.1, 0.2, 0.3, 0.4])
    assert model.loss(w) == pytest.approx(loss(w))
    best = model.best(around=[0.25] * 4, tau=0.0)
    assert best.sum() == pytest.approx(1)
    assert best.min() >= 0
    others = np.random.default_rng(1).dirichlet(np.ones(4), 3000)
    assert loss(best) <= min(loss(w) for w in others) + 1e-9


def test_the_pull_goes_from_the_best_weights_to_the_uniform_ones():
    x, h = points(3)
    model = LocalModel(losses=0.5 * (x**2 @ h), inner=(x * h) @ x.T)
    u = np.full(4, 0.25)
    away = [float(np.abs(model.best(around=u, tau=tau) - u).sum()) for tau in (0.0, 0.1, 1.0, 10.0, 1e6)]
    assert away == sorted(away, reverse=True)
    assert away[-1] == pytest.approx(0, abs=1e-5)


def test_products_by_group_find_the_curvature_of_each_group():
    rng = np.random.default_rng(4)
    x, scales = rng.standard_normal((6, 12)), np.repeat([0.2, 5.0, 1.0], 4)
    products = [x[:, part] @ x[:, part].T for part in (slice(0, 4), slice(4, 8), slice(8, 12))]
    rows = rng.dirichlet(np.ones(6), 10)
    loss = lambda w: 1 + 0.5 * float(scales @ (w @ x) ** 2)  # noqa: E731
    model = from_products([loss(w) for w in np.eye(6)], products, rows=rows, merged=[loss(w) for w in rows])
    unseen = rng.dirichlet(np.ones(6), 5)
    assert [model.loss(w) for w in unseen] == pytest.approx([loss(w) for w in unseen])


def test_points_that_do_not_differ_keep_their_weights():
    model = from_pairs([2.0, 2.0, 2.0], {(0, 1): 2.0, (0, 2): 2.0, (1, 2): 2.0})
    assert model.best(around=[0.5, 0.25, 0.25], tau=0.0).tolist() == [0.5, 0.25, 0.25]


def test_a_pair_that_nobody_scored_is_named():
    with pytest.raises(TheoryError, match="midpoint of points 0 and 2"):
        from_pairs([1.0, 1.0, 1.0], {(0, 1): 0.9, (1, 2): 0.9})


@pytest.mark.parametrize(
    ("unequal", "disagree", "wins", "losses", "lower"),
    [(True, 0.3, 27, 0, 0.13), (False, 0.3, 28, 0, 0.03), (False, 20.0, 0, 2, -0.01)],
    ids=["unequal recipes", "equal recipes", "noisy validation"],
)
def test_against_the_soup_chosen_on_validation(unequal, disagree, wins, losses, lower):
    ratios, promises = [], []
    for seed in range(STUDIES):
        study = simulated_study(seed, unequal=unequal, disagree=disagree)
        plain = study.excess(study.choose("trajectory-soup").option.weights)
        found = study.choose("quadratic")
        assert all(weight > 0 for weight in found.option.weights.values())
        ratios.append(study.excess(found.option.weights) / plain)
        promises.append(found.promise)
    assert sum(ratio < 1 for ratio in ratios) >= wins
    assert sum(ratio > 1 for ratio in ratios) <= losses
    assert 1 - np.mean(ratios) >= lower
    kept = [p for p in promises if p.kept]
    assert all(p.measured > p.error for p in kept)
    if disagree < 1:
        assert np.mean([p.measured for p in kept]) == pytest.approx(np.mean([p.promised for p in kept]), rel=0.25)


def test_weights_over_checkpoints_win_where_validation_is_good():
    ratios = []
    for seed in range(4):
        study = simulated_study(seed, unequal=True, disagree=0.3)
        plain = study.excess(study.choose("trajectory-soup").option.weights)
        found = study.choose("quadratic", over="checkpoints")
        assert all(weight > 0 for weight in found.option.weights.values())
        ratios.append(study.excess(found.option.weights) / plain)
    assert np.mean(ratios) < 0.97
    assert max(ratios) <= 1


def test_too_few_documents_are_refused_or_leave_the_uniform_soup():
    study = simulated_study(0, unequal=True, disagree=0.3, documents=29)
    with pytest.raises(SelectionError, match=r"as much as 29 of one size, of 30 at least: hand over more"):
        study.choose("quadratic")
    found = study.choose("quadratic", few="uniform")
    assert found.promise is None
    assert found.option.weights == study.choose("trajectory-soup").option.weights


def test_what_it_asks_is_counted_and_few_rounds():
    study = simulated_study(0, unequal=True, disagree=0.3)
    found = study.choose("quadratic")
    assert found.spent.validation_passes == sum(study.asked)
    assert len(study.asked) == 4  # uniform soups; anchors and pairs; weights crosswise; the weights
