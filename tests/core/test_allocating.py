"""A game that spends a budget on branches: whatever the world and the policy, it ends and keeps to its budget."""

import numpy as np
import pytest

from tests.core.law_worlds import LawWorld
from trajsoup.core.adaptive import Move, Policy
from trajsoup.core.allocating import play

WORLDS = 300


def random_world(rng, *, seed):
    """Any law, few or many looks at uneven distances; some branches spoil the soup, drift, diverge or are infinite."""
    names = tuple(f"EXP{i + 1}" for i in range(rng.integers(1, 7)))
    positions = tuple(np.cumsum(rng.choice([50, 100, 150, 300, 400], size=rng.integers(1, 7))).tolist())

    def some(share):
        return [name for name in names[1:] if rng.random() < share]

    return LawWorld(
        alpha=10 ** rng.uniform(-3, 0),
        p=rng.uniform(0.1, 2.0),
        b=float(rng.choice([0.0, 10 ** rng.uniform(-3, 0)])),
        q=rng.uniform(-0.5, 0.5),
        noise=float(rng.choice([0.0, 0.002, 0.05])),
        worse={name: rng.normal(0, 0.05) for name in some(0.4)} | dict.fromkeys(some(0.02), float("inf")),
        drifts={name: rng.normal(0, 0.01) for name in some(0.3)},
        diverge={name: int(rng.choice(positions)) for name in some(0.15)},
        names=names,
        positions=positions,
        saturated=int(rng.choice([10**9, positions[len(positions) // 2]])),
        seed=seed,
    )


def random_policy(rng):
    return Policy(
        start=int(rng.integers(1, 4)),
        sure=float(rng.choice([0.0, 0.3, 0.5, 1.0])),
        lean=float(rng.choice([0.5, 1.0, 2.0])),
        drop=float(rng.choice([0.5, 0.9, 1.0])),
        shorten=[None, 0.5, 0.9][rng.integers(3)],
        looks=int(rng.integers(1, 4)),
        draws=40,
    )


@pytest.fixture(scope="module")
def games():
    found = []
    for seed in range(WORLDS):
        rng = np.random.default_rng(seed)
        world, policy = random_world(rng, seed=seed), random_policy(rng)
        least = min(policy.start, len(world.names)) * world.positions[0]
        budget = least + int(rng.uniform(0, 5) * world.positions[-1])
        played = play(world, policy, budget=budget, tolerance=0.01)
        assert play(world, policy, budget=budget, tolerance=0.01) == played
        found.append((world, budget, played))
    return found


def test_every_move_is_made_in_some_of_these_worlds(games):
    made = [decision.move for _, _, played in games for decision in played.decisions]
    assert all(made.count(move) > WORLDS / 10 for move in Move)
    assert any(played.lost for _, _, played in games)


def test_the_budget_is_kept_and_what_was_trained_is_what_was_paid(games):
    for world, budget, played in games:
        furthest = {}
        for names, tokens in world.reached:
            furthest |= {name: max(tokens, furthest.get(name, 0)) for name in names}
        assert played.trained == furthest
        assert played.spent == sum(furthest.values()) <= budget
        assert all(decision.left >= 0 for decision in played.decisions)


def test_the_baseline_is_left_and_every_branch_that_is_left_has_been_where_the_game_ends(games):
    for world, _, played in games:
        assert played.live[0] == world.names[0]
        assert all(played.trained[name] >= played.tokens for name in played.live)
        assert {*played.live, *played.stopped, *played.lost} == set(played.trained)
        assert len(played.live) + len(played.stopped) + len(played.lost) == len(played.trained)


def test_a_branch_is_stopped_for_the_length_of_others_only_where_these_go_on(games):
    for _, _, played in games:
        for decision in played.decisions:
            for why in decision.stopped.values():
                assert "as length of the others" not in why or decision.move is Move.EXTEND


def test_the_game_ends_with_no_step_of_all_that_could_still_be_paid_unless_it_went_back(games):
    for world, budget, played in games:
        steps = [p - played.tokens for p in world.positions if p > played.tokens]
        back = any(decision.move is Move.BACK for decision in played.decisions)
        assert back or not steps or len(played.live) * steps[0] > budget - played.spent
