"""Policies replayed over a finished tiny study, and what its own beginning would have told."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.study.tiny_study import make_fork_point, run_tiny, small_documents
from trajsoup.core.adaptive import Policy
from trajsoup.core.replay import regrets
from trajsoup.study.allocation.replay import PLAIN, FinishedWorld, games, outcome_of, replayed
from trajsoup.study.design.ahead import gains_ahead
from trajsoup.study.records.files import Records
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.score.scorer import silent
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
    ran = run_tiny(folder, make_fork_point(folder / "model"))
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
    assert max(at for at, _ in world.loss_gaps("EXP2", first)) <= first


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
    (replay,) = replayed(world, found, seed=0)
    assert min(replay.static.values()) == 0
    for name, played in found[0].policies.items():
        same = [n for n, outcome in found[0].static.items() if outcome == outcome_of(played)]
        for n in same:
            assert replay.policies[name] == replay.static[n]
    assert all(np.isfinite(list(replay.policies.values())))


def test_the_script_makes_a_table_of_regrets(world):
    last = world.positions[-1]
    found = games(world, budgets=[last, 2 * last], policies=POLICIES)
    seeds = [r for seed in (0, 1) for r in replayed(world, found, seed=seed)]
    lines = script("generate_adaptive").table(regrets(seeds, plain=PLAIN), horizon=last).splitlines()
    assert lines[2].startswith("| 1 T | ")
    assert len(lines[2].split("|")) == len(lines[0].split("|"))


def test_the_beginning_of_a_study_is_held_against_its_end(bench):
    found = gains_ahead(bench, n_branches=2)
    assert found.pairs == 3
    assert found.spearman_of_cosine is not None
    assert found.picked_gain <= found.best_gain
    lines = script("generate_design").lines_of({0: found, 1: found}).splitlines()
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
