"""Regrets over seeds: no seed has a say in what was tuned for it."""

import pytest

from trajsoup.core.replay import Replayed, above_best, mean_over_orders, static_elsewhere, tuned_elsewhere
from trajsoup.errors import TheoryError


def replay(seed, policies, static, *, budget=100):
    return Replayed(seed=seed, budget=budget, policies=policies, static=static)


def test_a_regret_is_the_loss_above_the_best_static_allocation():
    policies, static = above_best({"a": 2.3, "b": 1.9}, {1: 2.5, 2: 2.0})
    assert policies == pytest.approx({"a": 0.3, "b": -0.1})
    assert static == pytest.approx({1: 0.5, 2: 0.0})


def test_a_seed_is_judged_by_what_was_best_in_the_others():
    replays = [
        replay(0, {"a": 0.0, "b": 9.0}, {1: 0.0, 2: 7.0}),
        replay(1, {"a": 1.0, "b": 0.0}, {1: 2.0, 2: 0.0}),
        replay(2, {"a": 1.0, "b": 0.5}, {1: 3.0, 2: 0.0}),
    ]
    assert tuned_elsewhere(replays) == {0: "b", 1: "a", 2: "a"}
    assert static_elsewhere(replays, budget=100) == {0: 2, 1: 1, 2: 1}


def test_policies_are_tuned_over_all_budgets_together():
    replays = [
        replay(seed, {"a": a, "b": 1.0}, {1: 0.0}, budget=budget)
        for seed in (0, 1, 2)
        for budget, a in ((100, 0.0), (200, 3.0))
    ]
    assert set(tuned_elsewhere(replays).values()) == {"b"}


def test_one_seed_cannot_tune():
    with pytest.raises(TheoryError, match="replay two at least"):
        tuned_elsewhere([replay(0, {"a": 0.0}, {1: 0.0})])


def test_orders_of_opening_are_averaged():
    assert mean_over_orders([{"a": 1.0}, {"a": 3.0}]) == {"a": 2.0}
