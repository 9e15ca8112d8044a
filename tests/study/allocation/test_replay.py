"""Policies replayed over a finished tiny study, and what its own beginning would have told."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.study.tiny_study import TEXT, make_fork_point, run_tiny, small_documents
from trajsoup.core.adaptive import Policy
from trajsoup.study.allocation.replay import PLAIN, FinishedWorld, games, measured, outcome_of, replayed
from trajsoup.study.design.ahead import gains_ahead
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.score.scorer import silent
from trajsoup.study.stages.estimates import row_of
from trajsoup.study.wishes.duel import duel, on_test
from trajsoup.study.workbench import Workbench

ROOT = Path(__file__).parents[3]
POLICIES = {
    PLAIN: Policy(draws=50),
    "eager": Policy(sure=0.0, shorten=None, draws=50),
    "shy": Policy(sure=1.0, draws=50),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    text = TEXT.replace("horizons: 2", "horizons: 3")
    ran = run_tiny(folder, make_fork_point(folder / "model"), text=text)
    return Workbench(ran.setup, cache=folder / "cache", progress=silent, corpus=small_documents(folder))


@pytest.fixture(scope="module")
def world(bench):
    return FinishedWorld(bench)


def test_the_world_has_the_studys_horizons_and_the_baseline_first(world, bench):
    assert world.names == ("EXP1", "EXP2", "EXP3")
    assert list(world.positions[1:]) == list(bench.field().horizons)
    assert world.positions[0] <= world.positions[1] // 2
    assert [len(FinishedWorld(bench, looks=n).positions) for n in (3, 6)] == [4, 6]


def test_another_world_of_the_same_study_scores_nothing_new(world, bench):
    world.table(world.names, world.positions[0])
    before = sorted((bench.setup.output / "scores").rglob("*"))
    other = FinishedWorld(bench)
    assert [other.table(world.names, t).loss for t in world.positions] == [
        world.table(world.names, t).loss for t in world.positions
    ]
    assert sorted((bench.setup.output / "scores").rglob("*")) == before


def test_the_table_of_a_look_is_what_the_theory_stage_measured(world):
    theory = Records(world.bench.setup.output).require(TheoryRecord)
    last = world.positions[-1]
    found = world.table(("EXP1", "EXP2"), last)
    known = {(s.branches, s.k): s.loss for s in theory.measured if s.horizon == last}
    assert found.loss == pytest.approx(min(known[("EXP1", "EXP2"), k] for k in (1, 2, 3)))
    assert found.pairs[0, 1].sum() / found.targets.sum() == pytest.approx(known[("EXP1", "EXP2"), found.k])


def test_a_look_knows_nothing_of_later_checkpoints(world):
    first = world.positions[0]
    branches, _, k = outcome = (("EXP1", "EXP2"), first, world.table(("EXP1", "EXP2"), first).k)
    row = world.row(outcome)
    tokens = {c.key: c.tokens for pool in world.bench.pools() for c in pool.candidates}
    assert max(tokens[key] for key in row.weights) <= first
    assert len(row.weights) == len(branches) * k
    assert max(at for at, _ in world.course("EXP2", first).gaps) <= first


def test_games_spend_no_more_than_the_budget_and_end_where_they_say(world):
    last = world.positions[-1]
    for game in games(world, budgets=[last, 2 * last], policies=POLICIES, orders=2):
        for played in game.policies.values():
            assert played.spent <= game.budget
            assert set(played.live) <= set(world.names)
        assert all(n * tokens <= game.budget for n, (_, tokens, _) in game.static.items())


def test_regrets_are_on_test_and_a_policy_that_does_as_a_static_one_has_its_regret(world):
    last = world.positions[-1]
    found = games(world, budgets=[2 * last], policies=POLICIES)
    (replay,) = replayed(found, measured(world, found), seed=0)
    assert min(replay.static.values()) == 0
    for name, played in found[0].policies.items():
        same = [n for n, outcome in found[0].static.items() if outcome == outcome_of(played)]
        for n in same:
            assert replay.policies[name] == replay.static[n]
    assert all(np.isfinite(list(replay.policies.values())))


def test_the_beginning_of_a_study_is_held_against_its_end(bench):
    found = gains_ahead(bench, n_branches=2)
    assert found.pairs == 3
    assert found.spearman_of_cosine is not None
    assert found.picked_gain <= found.best_gain
    assert found.ahead_of_next is not None
    assert found.ahead_of_next >= 0
    on_test = gains_ahead(bench, n_branches=2, late_on_test=True)
    assert (on_test.picked, on_test.promised_gain) == (found.picked, found.promised_gain)
    assert on_test.picked_gain != found.picked_gain


def test_what_was_scored_on_test_with_items_or_without_is_not_scored_again(bench):
    rows = [row_of(row) for row in bench.records.require(RowsRecord).rows]
    before = sorted((bench.setup.output / "scores").rglob("*"))
    losses = on_test(bench, rows)
    assert sorted((bench.setup.output / "scores").rglob("*")) == before
    known = {one.row: one.loss.value for one in bench.records.require(EvaluationsRecord).evaluations}
    assert {name: of_row.loss() for name, of_row in losses.items()} == pytest.approx(known)


@pytest.fixture(scope="module")
def held(bench):
    """The study held to all four ideas, with sets of two of its three recipes."""
    wishes = script("generate_wishes")
    wishes.SIZES = (2,)
    return wishes.measured_seed(bench)


def test_weights_that_are_not_taken_leave_the_soup_that_validation_chose(held):
    for one in held.weights.values():
        assert one.promise is not None
        if not one.promise.kept:
            assert one.taken.loss() == one.plain.loss()
        assert one.gained == pytest.approx(one.uniform.loss() - one.tried.loss())


def test_the_split_is_promised_and_measured_for_every_number_of_branches(held, bench):
    assert set(held.split.promised) == set(held.split.measured) == {1, 2, 3}
    assert held.split.promised_gain(held.split.chosen) == 0
    assert held.split.measured[held.split.best].loss() == min(m.loss() for m in held.split.measured.values())
    total = bench.field().horizon
    (plain,) = (r for r in bench.records.require(RowsRecord).rows if r.name == "single-merge")
    assert plain.budget_tokens == total


def test_the_best_in_hindsight_is_never_worse(held):
    for budget in (held.adapted.horizon, 2 * held.adapted.horizon):
        hindsight = held.adapted.hindsight(budget=budget).loss()
        assert all(hindsight <= held.adapted.static(n, budget=budget).loss() for n in held.adapted.sizes(budget=budget))
    for picked in held.picked.values():
        assert picked.soups[picked.best].loss() <= picked.soups[picked.first].loss()


def test_the_page_tells_of_each_idea_whether_it_beats_the_plain_choice(held, bench):
    wishes = script("generate_wishes")
    text = wishes.page({0: held, 1: held}, bench.records.require(PlanRecord))
    for title in ("A. The best weights", "B. The price", "C. Branches that adapt", "D. Recipes designed"):
        assert f"**{title}" in text
        assert f"\n## {title}" in text
    words = ("beats", "loses to", "cannot be told from", "ends with the same model as")
    verdicts = [line for line in text.splitlines() if line.startswith("- **")]
    assert all(any(word in line for word in words) for line in verdicts)
    assert "The plain choice is beaten in all of this by: " in text


def test_a_duel_says_beats_only_where_the_whole_interval_does(held):
    wishes = script("generate_wishes")
    plain = held.split.measured[1]

    def off_by(*nats):
        """Seed by seed, the same in every document."""
        return {s: dataclasses.replace(plain, nll=plain.nll + nats[s] * plain.targets) for s in (0, 1, 2)}

    both = dict.fromkeys((0, 1, 2), plain)
    assert wishes.verdict(duel(off_by(-1.0, -1.1, -0.9), both, against="it")).startswith("beats it (-")
    assert wishes.verdict(duel(off_by(1.0, 1.1, 0.9), both, against="it")).startswith("loses to it (+")
    assert wishes.verdict(duel(off_by(0.5, -1.0, 0.2), both, against="it")).startswith("cannot be told from it")
    assert wishes.verdict(duel(both, both, against="it")) == "ends with the same model as it in every seed"
    assert duel({0: plain}, {0: plain}, against="it").over_seeds is None


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
