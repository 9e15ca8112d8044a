"""The price of a trajectory: the law is found again, its optimum is the optimum, the cost is the formula's."""

import itertools
import math

import numpy as np
import pytest

from trajsoup.core.estimators import SoupLosses
from trajsoup.core.price import Prices, Surface, allocations, check_allocation, fit_surface, recommended
from trajsoup.errors import TheoryError

T = 1200
BRANCHES = ("EXP1", "EXP2", "EXP3", "EXP4")
PRICES = Prices(flops_per_token=6.0, checkpoint_every=50, validation_tokens=20)


def a(t, k):
    return 2.0 + 0.05 * k + 0.4 * (t / T) ** -0.7


def b(t, k):
    return 0.3 / k * (t / T) ** 0.5


def losses_at(t, *, ks=(1, 2, 4), law=lambda n, t, k: a(t, k) + b(t, k) / n):
    """Soups of every subset, exactly on the law, with anchors that differ."""
    off = dict(zip(BRANCHES, (-0.03, 0.01, 0.02, 0.0), strict=True))
    soups = {}
    for k, n in itertools.product(ks, range(1, len(BRANCHES) + 1)):
        for names in itertools.combinations(BRANCHES, n):
            soups[frozenset(names), k] = law(n, t, k) + math.fsum(off[name] for name in names) / n
    return SoupLosses(soups=soups)


def surface():
    return fit_surface({t: losses_at(t) for t in (300, 600, 900, T)})


def test_the_law_is_found_again_between_and_beyond_what_was_fitted():
    found = surface()
    assert found.p == pytest.approx(0.7, rel=0.05)
    assert found.q == pytest.approx(0.5, abs=0.05)
    for n, t, k in itertools.product((1, 3, 8), (400, T, 1.5 * T), (1, 2, 4)):
        assert found.loss(n, t, k) == pytest.approx(a(t, k) + b(t, k) / n, abs=3e-3)


def test_the_best_number_of_branches_and_the_worth_of_one_are_those_of_the_law():
    found = surface()
    tokens, k = 4 * T, 1
    ns = np.linspace(0.5, 12, 4000)
    t = tokens / ns[np.argmin([found.loss(n, tokens / n, k) for n in ns])]
    assert found.best_n(t, k) == pytest.approx(tokens / t, rel=0.01)
    n, t = 3, 700.0
    more = found.worth_of_branch(n, t, k)
    step = 1e-4
    per_token = (found.loss(n, t, k) - found.loss(n, t + step, k)) / step
    assert more * per_token == pytest.approx(found.loss(n, t, k) - found.loss(n + 1, t, k), rel=1e-3)


def test_more_tokens_that_take_nothing_off_leave_branches_alone():
    flat = fit_surface({t: losses_at(t, law=lambda n, t, k: 2 + 0.3 / n) for t in (300, 600, T)})
    assert flat.best_n(T, 1) > 100
    assert flat.worth_of_branch(2, T, 1) > 100 * T


def test_the_cost_is_the_whole_one():
    prices = Prices(
        flops_per_token=6.0,
        checkpoint_every=50,
        validation_tokens=30,
        checkpoint_bytes=1000,
        searched_rows=7,
        searched_branches=5,
        branch_tokens=10,
        dollars_per_flop=0.5,
        dollars_per_byte=0.001,
    )
    n, t, phi, v = 2, 600, 6.0, 30
    flops = n * (phi * t + t / 50 * v * phi / 3 + 10 * phi) + 7 * v * phi / 3 + (5 - n) * phi * t
    assert prices.flops(n, t) == pytest.approx(flops)
    assert prices.dollars(n, t) == pytest.approx(0.5 * flops + 0.001 * n * t / 50 * 1000)


def test_every_allocation_costs_the_budget_and_the_least_promise_is_recommended():
    budget = PRICES.flops(4, T / 2)
    found = allocations([surface()], prices=PRICES, budget=budget, in_dollars=False, most=6)
    assert [one.n_branches for one in found] == [1, 2, 3, 4, 5, 6]
    for one in found:
        assert PRICES.flops(one.n_branches, one.horizon) == pytest.approx(budget)
        assert one.k == min((1, 2, 4), key=lambda k: a(one.horizon, k) + b(one.horizon, k) / one.n_branches)
    best = recommended(found, longest=T)
    assert best == min(found, key=lambda one: one.loss)
    assert found[0].beyond
    assert recommended(found, longest=T / 100) is None


def test_without_spread_one_trajectory_is_the_answer():
    alike = fit_surface({t: losses_at(t, law=lambda n, t, k: a(t, k)) for t in (300, 600, T)})
    found = allocations([alike], prices=PRICES, budget=PRICES.flops(2, T / 2), in_dollars=False, most=6)
    assert recommended(found, longest=T).n_branches == 1


def test_small_soups_and_short_horizons_predict_the_split_of_the_budget():
    limited = {n: {k: a(T / n, k) + b(T / n, k) / n for k in (1, 2, 4)} for n in (1, 2, 3, 4)}
    found = check_allocation({t: losses_at(t) for t in (300, 600, 900, T)}, total_tokens=T, limited=limited)
    for n in limited:
        assert found.predicted[str(n)] == pytest.approx(found.measured[str(n)], abs=5e-3)
    assert found.chosen == found.best
    assert found.regret == 0
    assert max(found.regret_of_one, found.regret_of_most) > 0


def test_one_horizon_is_refused():
    with pytest.raises(TheoryError, match="two branches at two horizons"):
        fit_surface({T: losses_at(T)})
    assert check_allocation({T: losses_at(T)}, total_tokens=T, limited={}) is None


def test_a_budget_below_one_checkpoint_is_refused():
    one = Surface(laws=surface().laws, p=0.7, q=0.5, t0=T, shortest=300)
    with pytest.raises(TheoryError, match="does not reach one branch"):
        allocations([one], prices=PRICES, budget=1.0, in_dollars=False, most=3)
