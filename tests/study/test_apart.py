"""A study whose Limited branches are trained apart: each with a schedule that ends at T / N."""

import json

import pytest

from tests.study.tiny_study import TEXT, make_study, run_tiny
from trajsoup.study.passes import count_passes
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.run import run_study
from trajsoup.study.train.plan import plan_study

WSD = "    limited: apart\n    baseline: {peak_lr: 3e-3, global_batch: 8, schedule: {shape: wsd, decay_to: 3e-4}}\n"
PREFIX = "\n".join(line for line in TEXT.splitlines() if "baseline:" not in line)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, fork_point):
    return run_tiny(tmp_path_factory.mktemp("apart") / "study", fork_point, text=PREFIX, more="\n" + WSD)


def runs_of(row):
    return {key.split("/")[1] for key in row.weights}


def test_limited_rows_are_made_of_runs_that_end_at_their_horizon_and_the_others_of_full_ones(ran):
    horizon = ran.records.require(PlanRecord).horizon
    limited = [row for row in ran.records.require(RowsRecord).rows if row.name.endswith("/limited")]
    assert {row.strategy for row in limited} == {"trajectory-soup", "model-soup", "full-soup"}
    for row in limited:
        assert row.horizon == horizon // len(row.branches)
        assert runs_of(row) == {f"{name}@{row.horizon}" for name in row.branches}
    for row in ran.records.require(RowsRecord).rows:
        if row not in limited:
            assert runs_of(row) == set(row.branches)


def test_a_run_apart_decays_within_its_own_horizon(ran):
    horizon = ran.records.require(PlanRecord).horizon

    def rates(run):
        lines = (ran.setup.output / "branches" / run / "metrics.jsonl").read_text().splitlines()
        return {row["tokens"]: row["learning_rate"] for row in map(json.loads, lines)}

    short, full = rates(f"EXP1@{horizon // 2}"), rates("EXP1")
    assert short[horizon // 2] == pytest.approx(3e-4)
    assert full[horizon // 2] == pytest.approx(3e-3)
    assert full[horizon] == pytest.approx(3e-4)


def test_what_was_trained_apart_is_counted(ran):
    plan = ran.records.require(PlanRecord)
    half, third = plan.horizon // 2, plan.horizon // 3
    assert plan.apart == (half, third)
    assert plan.total_tokens == 3 * (plan.horizon + half + third)
    rows = {row.name: row for row in ran.records.require(RowsRecord).rows}
    soup = rows["trajectory-soup/limited"]
    assert set(soup.chosen_on.trained.values()) == {half + third}  # pairs of T/2 and three of T/3 were compared
    assert soup.budget_tokens == plan.horizon
    for of_full_runs in ("trajectory-soup/extended", "single-merge", "raw-best"):  # the last compares every checkpoint
        assert set(rows[of_full_runs].chosen_on.trained.values()) == {plan.horizon}
    validation = ran.records.require(ValidationRecord)
    assert [len(validation.checkpoints), len(validation.apart)] == [3 * 6, 3 * (3 + 2)]
    planned = plan_study(ran.setup)
    assert planned.cost.checkpoints == count_passes(planned).probe == len(validation.scored)
    assert planned.cost.train_tokens == plan.total_tokens


def test_branches_are_screened_in_the_runs_that_are_used(ran):
    plan, screen = ran.records.require(PlanRecord), ran.records.require(ScreenRecord)
    assert [at.horizon for at in screen.early] == [*reversed(plan.apart), plan.horizon]
    scored = {(c.key.split("/")[1], c.tokens): c.probe_loss for c in ran.records.require(ValidationRecord).scored}
    at = plan.apart[1]  # two checkpoints: the screen's loss is their mean
    mean = {n: sum(scored[f"{n}@{at}", tokens] for tokens in (at // 2, at)) / 2 for n in ("EXP1", "EXP3")}
    assert screen.early[0].loss_gaps["EXP3"] == pytest.approx(mean["EXP3"] / mean["EXP1"] - 1)


def test_the_crossing_compares_only_runs_whose_schedules_have_ended(ran):
    horizon = ran.records.require(PlanRecord).horizon
    for point in ran.records.every(SweepRecord)["crossing"].points:
        expected = {n if point.horizon == horizon else f"{n}@{point.horizon}" for n in point.branches}
        assert runs_of(point) == expected


def test_a_finished_study_is_not_computed_again(ran):
    assert run_study(ran.setup, corpus=None, cache=ran.setup.output / "nowhere").made == ()


def test_a_study_that_says_nothing_of_it_keeps_its_digest(tmp_path, fork_point):
    studies = [make_study(tmp_path / n, fork_point, more=m) for n, m in (("a", ""), ("b", "    limited: prefix\n"))]
    apart = make_study(tmp_path / "c", fork_point, more="    limited: apart\n")
    assert studies[0].digest == studies[1].digest != apart.digest
