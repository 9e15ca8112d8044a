"""Branches that adapt: gains are the formulas', decisions follow them, and on worlds of a known law little is lost."""

import itertools

import numpy as np
import pytest

from tests.core.law_worlds import LawWorld
from trajsoup.core.adaptive import Course, Look, Move, Policy, decide
from trajsoup.core.allocating import play, statics
from trajsoup.errors import TheoryError

T = 1200


def look_at(world, names, t, **changes):
    positions = [p for p in world.positions if p <= t][-3:]
    after = [p for p in world.positions if p > t]
    return Look(
        live=tuple(names),
        tables=tuple(world.table(names, p) for p in positions),
        left=changes.pop("left", 10**6),
        step=after[0] - t if after else None,
        waiting=changes.pop("waiting", 3),
        **changes,
    )


def decided(look, **policy):
    return decide(look, Policy(**policy), tolerance=0.01, horizon=T)


def test_gains_are_those_of_the_formulas():
    world = LawWorld(alpha=0.1, p=0.7, b=0.06)
    names = world.names[:3]
    found = decided(look_at(world, names, 600)).gains
    assert found.spread == pytest.approx(0.06)
    assert found.open == pytest.approx(0.06 * (1 / 3 - 1 / 4))
    assert found.extend == pytest.approx(world.a(600) - world.a(600 * 4 / 3), rel=0.02)
    assert found.beta == pytest.approx(-0.7 * (world.a(600) - 2), rel=0.02)  # da / d log t


def test_a_saturated_run_opens_and_a_falling_one_extends():
    flat = decided(look_at(LawWorld(alpha=1e-6), ("EXP1", "EXP2"), 600))
    steep = decided(look_at(LawWorld(alpha=0.5, b=0.001), ("EXP1", "EXP2"), 600))
    assert flat.move is Move.OPEN
    assert steep.move is Move.EXTEND
    assert "as length" in steep.reasons[0]


def test_what_the_budget_or_the_recipes_do_not_allow_is_not_done():
    world = LawWorld(alpha=1e-6)
    assert decided(look_at(world, ("EXP1", "EXP2"), 600, left=500)).move is Move.EXTEND
    assert decided(look_at(world, ("EXP1", "EXP2"), 600, waiting=0)).move is Move.EXTEND
    assert decided(look_at(world, ("EXP1", "EXP2"), 600, left=150)).move is Move.END
    assert decided(look_at(world, ("EXP1", "EXP2"), T, left=5 * T)).move is Move.OPEN
    alike = LawWorld(alpha=1e-6, b=0.0)
    assert decided(look_at(alike, ("EXP1", "EXP2"), T, left=5 * T)).move is Move.END


def test_where_the_last_stretch_took_nothing_off_new_branches_stop_before_it():
    world = LawWorld(saturated=400)
    found = decided(look_at(world, ("EXP1", "EXP2"), 500, left=400))
    assert found.move is Move.BACK
    (why,) = found.reasons
    assert why.startswith("the last 100 tokens took nothing off the soup's loss: its branches are taken up to 400")
    alike = LawWorld(saturated=400, b=0.0)
    assert decided(look_at(alike, ("EXP1", "EXP2"), 500, left=400)).move is not Move.BACK  # nothing to open for
    assert decided(look_at(world, ("EXP1", "EXP2"), 400)).move is not Move.BACK
    assert decided(look_at(world, ("EXP1", "EXP2"), 500, left=399)).move is not Move.BACK
    assert decided(look_at(world, ("EXP1", "EXP2"), 500, waiting=0)).move is not Move.BACK
    ended = play(world, Policy(), budget=1900, tolerance=0.01)
    assert (len(ended.live), ended.tokens) == (4, 400)
    assert ended.trained == {"EXP1": 500, "EXP2": 500, "EXP3": 400, "EXP4": 400}  # two went on before it showed
    assert ended.spent == 1800


def test_at_the_end_the_soup_leaves_out_what_spoils_it_and_at_a_branchs_last_position_the_screen_judges():
    world = LawWorld(worse={"EXP2": 0.5}, drifts={"EXP3": 0.01})
    courses = {name: world.course(name, T) for name in world.names[1:3]}
    ended = decided(look_at(world, world.names[:3], T, left=0, courses=courses))
    assert ended.move is Move.END
    assert list(ended.stopped) == ["EXP2"]
    assert "the soup without it is better in 100% of draws" in ended.stopped["EXP2"]


def test_a_branch_that_the_screen_could_not_tell_from_one_within_the_tolerance_goes_on():
    world = LawWorld(drifts={"EXP2": 0.005})
    gaps = world.course("EXP2", 600).gaps
    sure, unsure = (
        decided(look_at(world, world.names[:2], 600, courses={"EXP2": Course(gaps=gaps, spread=spread)}))
        for spread in (0.001, 0.01)
    )
    assert list(sure.stopped) == ["EXP2"]
    assert not unsure.stopped


def test_a_branch_that_spoils_the_soup_is_dropped_at_the_second_look_and_not_at_the_first():
    world = LawWorld(worse={"EXP2": 0.5})
    first = decided(look_at(world, world.names[:3], 400))
    assert first.suspected == ("EXP2",)
    assert not first.stopped
    second = decided(look_at(world, world.names[:3], 500, suspected=first.suspected))
    assert list(second.stopped) == ["EXP2"]
    assert "two looks on end" in second.stopped["EXP2"]
    assert not decided(look_at(world, ("EXP1", "EXP3", "EXP4"), 500, suspected=("EXP3",))).stopped


def test_a_branch_whose_loss_gap_will_leave_the_tolerance_is_abandoned_but_never_the_baseline():
    world = LawWorld(drifts={"EXP2": 0.005, "EXP3": 0.0005})
    paths = {name: world.course(name, 600) for name in world.names[1:3]}
    found = decided(look_at(world, world.names[:3], 600, courses=paths))
    assert list(found.stopped) == ["EXP2"]
    assert "P(J > 1.0% at the horizon)" in found.stopped["EXP2"]


def test_what_is_left_goes_into_one_run_where_length_is_worth_more_than_branches():
    world = LawWorld(alpha=0.5, b=0.001, worse={"EXP2": 0.0001})
    found = decided(look_at(world, world.names[:3], 300, left=900))
    assert found.gains.fewer == 1.0
    assert list(found.stopped) == ["EXP2"]
    assert "worth more as length" in found.stopped["EXP2"]
    assert not decided(look_at(world, world.names[:3], 300, left=900), shorten=None).stopped
    few = decided(look_at(world, world.names[:3], 300, left=199, waiting=0))  # a step of two costs 200
    assert list(few.stopped.values()) == ["what is left extends 1 of 3 branches"] * 2


def test_where_running_on_would_leave_tokens_that_buy_no_branch_one_more_is_opened_unless_that_costs():
    """After 600 tokens of one branch 1,500 are left: to the end it leaves 900, and a branch costs 1,200 there."""
    alone = look_at(LawWorld(b=0.1, alpha=0.02), ("EXP1",), 600, left=1500, spread=0.1)
    found = decided(alone)
    assert found.move is Move.OPEN
    assert "1 branch to the end leaves 900 tokens; 2 of 1,050 instead take" in found.reasons[-1]
    dear = decided(look_at(LawWorld(b=0.001, alpha=0.5), ("EXP1",), 600, left=1500, spread=0.001))
    assert dear.move is Move.EXTEND
    assert "2 of 1,050 instead would cost" in dear.reasons[-1]
    enough = look_at(LawWorld(b=0.1, alpha=0.02), ("EXP1",), 600, left=1800, spread=0.1)
    assert decided(enough).move is Move.EXTEND  # the other branch can be had at the end, and nothing is left


def test_what_is_left_for_some_branches_only_extends_these_or_the_decision_says_how_unlikely_that_helps():
    world = LawWorld(alpha=0.5, b=0.001, worse={"EXP3": 0.001})
    found = decided(look_at(world, world.names[:3], 300, left=200, waiting=0), drop=1.0)
    assert found.move is Move.EXTEND
    assert len(found.stopped) == 1
    wide = LawWorld(alpha=0.001, b=0.5)
    ended = decided(look_at(wide, wide.names[:3], 300, left=200, waiting=0))
    assert ended.move is Move.END
    assert not ended.stopped
    assert "200 tokens extend 2 of 3 branches, which is better in 0% of draws" in ended.reasons[-1]


def test_a_branch_is_not_stopped_for_the_length_of_others_that_cannot_go_on_either():
    """Positions lie 900 tokens apart: what is left is no step of two, and would be worth more as length if it were."""
    world = LawWorld(alpha=0.5, b=0.001, positions=(150, 300, 1200))
    found = decided(look_at(world, world.names[:3], 300, left=890))
    assert found.gains.fewer == 1.0
    assert not found.stopped
    assert "a step of 3 branches costs more than is left" in found.reasons


def test_what_the_soup_leaves_out_at_the_end_leaves_its_step_to_the_others():
    world = LawWorld(alpha=0.001, worse={"EXP2": 0.5})
    found = decided(look_at(world, world.names[:3], 300, left=250, waiting=0))
    assert found.move is Move.EXTEND
    assert list(found.stopped) == ["EXP2"]
    assert found.reasons[-1] == "250 tokens are enough for a step of 2 branches"


def test_one_branch_that_cannot_go_on_says_whether_that_is_its_end_or_its_budget():
    assert decided(look_at(LawWorld(), ("EXP1",), T, left=T)).reasons == ("every branch is at its last position",)
    coarse = LawWorld(positions=(100, 500))
    (why,) = decided(look_at(coarse, ("EXP1",), 100, left=300)).reasons
    assert why == "a step of 1 branch costs more than is left"


def test_leaning_changes_what_length_is_taken_to_gain_and_not_the_slope_that_is_shown():
    look = look_at(LawWorld(), ("EXP1", "EXP2"), 600)
    plain, leaning = decided(look).gains, decided(look, lean=2.0).gains
    assert leaning.beta == plain.beta
    assert leaning.extend == pytest.approx(2 * plain.extend)


def test_a_branch_of_infinite_loss_is_dropped_and_what_is_not_finite_is_recorded_as_none():
    world = LawWorld(worse={"EXP2": float("inf")})
    first = decided(look_at(world, world.names[:3], 400))
    assert first.suspected == ("EXP2",)
    assert first.loss is None
    assert list(decided(look_at(world, world.names[:3], 500, suspected=("EXP2",))).stopped) == ["EXP2"]
    assert list(decided(look_at(world, world.names[:3], T, left=0)).stopped) == ["EXP2"]


def test_the_baseline_is_never_stopped():
    world = LawWorld(worse={"EXP1": 0.5}, drifts={"EXP1": 0.01})
    look = look_at(world, ("EXP1", "EXP2"), 500, suspected=("EXP1", "EXP2"))
    assert not decided(look).stopped
    assert not decided(look).suspected


def test_the_budget_is_never_exceeded_and_every_step_is_trained():
    for budget, seed in itertools.product((300, 1200, 2500, 7000), range(3)):
        world = LawWorld(seed=seed, noise=0.02)
        found = play(world, Policy(), budget=budget, tolerance=0.01)
        assert found.spent <= budget
        assert found.spent == sum(found.trained.values())
        assert {name for names, _ in world.reached for name in names} >= set(found.live)
        assert max(t for _, t in world.reached) == found.tokens


def test_a_game_played_again_makes_the_same_decisions():
    games = [play(LawWorld(noise=0.05), Policy(), budget=3000, tolerance=0.01) for _ in range(2)]
    assert games[0] == games[1]


def test_a_branch_that_diverges_is_lost_and_the_game_goes_on():
    found = play(LawWorld(diverge={"EXP2": 300}), Policy(), budget=3000, tolerance=0.01)
    assert found.lost == {"EXP2": "diverged"}
    assert "EXP2" not in found.live
    assert found.tokens > 300
    with pytest.raises(TheoryError, match="the baseline 'EXP1' did not arrive"):
        play(LawWorld(diverge={"EXP1": 300}), Policy(), budget=3000, tolerance=0.01)


def test_a_budget_below_the_first_look_is_refused():
    with pytest.raises(TheoryError, match="look earlier, or raise it"):
        play(LawWorld(), Policy(), budget=150, tolerance=0.01)


def test_static_allocations_cost_no_more_than_the_budget():
    found = statics(("a", "b", "c"), (100, 200, 300), budget=600)
    assert [(s.n_branches, s.tokens) for s in found] == [(1, 300), (2, 300), (3, 200)]


def regrets(world, budget, policy=Policy()):  # noqa: B008
    """Above the best static allocation: of the policy, of the fewest branches, of the most."""
    found = play(world, policy, budget=budget, tolerance=0.01)
    fixed = [
        world.loss(world.names[: s.n_branches], s.tokens) for s in statics(world.names, world.positions, budget=budget)
    ]
    mine = world.loss(found.live, found.tokens)
    return mine - min(fixed), fixed[0] - min(fixed), fixed[-1] - min(fixed)


def test_where_some_recipes_spoil_the_soup_it_is_better_than_the_best_fixed_number_of_branches():
    """Five recipes, few looks, a budget that no whole branches fill. A policy of a straight line in log t lost 0.002."""
    rng, found = np.random.default_rng(1), []
    names = ("EXP1", "EXP2", "EXP3", "EXP4", "EXP5")
    for seed in range(100):
        worse = {name: float(x) for name, x in zip(names[1:], 0.03 * rng.standard_normal(4), strict=True)}
        law = {"alpha": 10 ** rng.uniform(-2.5, -0.5), "p": rng.uniform(0.3, 1.0)}
        law |= {"b": 10 ** rng.uniform(-2.5, -0.5), "q": rng.uniform(-0.3, 0.5)}
        positions = (150, 300, 600, 900, 1200)
        world = LawWorld(**law, noise=0.01, seed=seed, names=names, positions=positions, worse=worse)
        found.append(regrets(world, 3600)[0])
    assert np.mean(found) == pytest.approx(-0.0018, abs=1e-4)  # as docs/decisions.md says


def test_over_worlds_of_many_laws_it_loses_less_than_any_fixed_number_of_branches():
    rng = np.random.default_rng(0)
    found = []
    for seed in range(60):
        world = LawWorld(
            alpha=10 ** rng.uniform(-2.5, -0.5),
            p=rng.uniform(0.3, 1.0),
            b=10 ** rng.uniform(-2.5, -0.5),
            q=rng.uniform(-0.3, 0.5),
            noise=0.002,
            seed=seed,
        )
        found.append(regrets(world, int(rng.choice([1200, 2400, 3600]))))
    mine, one, most = np.mean(found, axis=0)
    assert mine < 0.25 * min(one, most)
    assert mine == pytest.approx(0.0044, abs=1e-4)  # as docs/decisions.md says
