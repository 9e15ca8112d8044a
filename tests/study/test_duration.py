"""The time that a plan tells: its arithmetic, and a real probe of a tiny model."""

import dataclasses
import json

import pytest

from tests.lm.stand_in import SEQUENCE, make_job
from tests.study.tiny_study import make_study, small_documents
from trajsoup.lm.rates import ScoringRate, TrainingRate
from trajsoup.study.duration import FILE, Rates, add_up, kind_of, no_duration, predict
from trajsoup.study.file.neighbours import BranchTrainMerge, BranchTrainMix, Diloco, Neighbours, Wsd
from trajsoup.study.passes import Passes, count_passes
from trajsoup.study.train.plan import on_corpus, plan_study

PASSES = Passes(validation=10, answered=5, probe=4, test=2, swept=0, ingredients=30)
TRAINING = TrainingRate(token_seconds=0.001, step_seconds=0.5, save_seconds=2.0)
SCORING = ScoringRate(token_seconds=0.01, suite_seconds=3.0, ingredient_seconds=0.1)
BRANCH = 12 * 8 * SEQUENCE * 0.001 + 12 * 0.5 + 3 * 2.0  # seconds of the job below


@pytest.fixture
def job(tmp_path, fork_point):
    return dataclasses.replace(make_job(tmp_path / "branch", fork_point), threads=1)


def added_up(plan, job, *, branches=3, cores=2, pretraining=None, **changes):
    scoring = dataclasses.replace(SCORING, **changes)
    rates = Rates(training={kind_of(job): TRAINING}, scoring=scoring, probed_items=10)
    return add_up(plan, PASSES, rates, branches=[job] * branches, pretraining=pretraining, cores=cores)


@pytest.fixture
def plan(tmp_path, fork_point):
    return plan_study(make_study(tmp_path / "study", fork_point))


def test_cores_share_branches_and_scores(plan, job):
    found = added_up(plan, job)
    scored = PASSES.tokens(plan) * 0.01 + 30 * 0.1
    assert found.parts == pytest.approx({"training": 3 * BRANCH, "scoring": scored})
    assert found.seconds == pytest.approx((3 * BRANCH + scored) / 2)


def test_one_branch_of_one_thread_leaves_the_other_cores_idle(plan, job):
    found = added_up(plan, job, branches=1, cores=4)
    assert found.seconds == pytest.approx(BRANCH + found.parts["scoring"] / 4)


def test_a_fork_point_is_waited_for_and_an_accelerator_is_not_divided(plan, job):
    waited = added_up(plan, job, pretraining=job)
    assert waited.seconds == pytest.approx(BRANCH + 3 * BRANCH / 2 + waited.parts["scoring"] / 2)
    alone = added_up(plan, job, pretraining=job, on_cpu=False)
    assert alone.seconds == pytest.approx(sum(alone.parts.values()))


def test_seeds_are_counted_and_fill_the_cores(plan, job):
    twice = dataclasses.replace(plan, study=dataclasses.replace(plan.study, seeds=2))
    one, two = added_up(plan, job, pretraining=job), added_up(twice, job, pretraining=job)
    assert two.parts == pytest.approx({name: 2 * part for name, part in one.parts.items()})
    assert two.seconds == pytest.approx(sum(two.parts.values()) / 2)


def test_items_are_scaled_from_those_probed_and_only_checkpoints_answer_on_validation(plan, job):
    asked = dataclasses.replace(plan.study.evaluation, items=100, validation_items=20)
    with_items = dataclasses.replace(plan, study=dataclasses.replace(plan.study, evaluation=asked))
    more = added_up(with_items, job).parts["scoring"] - added_up(plan, job).parts["scoring"]
    assert more == pytest.approx(0.3 * ((4 + 1) * 20 + 2 * 100))


def test_methods_that_train_and_those_that_learn_take_the_time_of_their_tokens(plan, job):
    asked = Neighbours(diloco=Diloco(workers=2), wsd=Wsd())
    more = dataclasses.replace(plan, study=dataclasses.replace(plan.study, neighbours=asked))
    token = BRANCH / (12 * 8 * SEQUENCE)
    found = added_up(more, job)
    assert found.parts["neighbours"] == pytest.approx(2 * plan.positions.horizon * token)
    assert found.seconds == pytest.approx(added_up(plan, job).seconds + found.parts["neighbours"] / 2)
    rates = Rates(training={kind_of(job): TRAINING}, scoring=SCORING, probed_items=10)
    jobs = {"branches": [job], "pretraining": None, "cores": 1}
    learned, not_ = (
        add_up(plan, dataclasses.replace(PASSES, gradient_tokens=n), rates, **jobs).parts["scoring"] for n in (5000, 0)
    )
    assert learned - not_ == pytest.approx(5000 * TRAINING.token_seconds)


def test_experts_that_two_methods_share_are_trained_once():
    two = {"branch_train_merge": BranchTrainMerge(), "branch_train_mix": BranchTrainMix(router_tokens=7)}
    assert Neighbours(**two).trained_tokens(100) == 107
    two["branch_train_merge"] = BranchTrainMerge(sources=("a", "b"))
    assert Neighbours(**two, wsd=Wsd()).trained_tokens(100) == 307


def test_what_it_leaves_out_is_said(plan, job):
    tuned = dataclasses.replace(plan, study=dataclasses.replace(plan.study, sft=object()))
    assert added_up(tuned, job).notes == ("the time of fine-tuning is not in it",)


def test_a_command_has_no_time_before_it_ran(tmp_path, fork_point):
    study = make_study(tmp_path / "study", fork_point, more="    trainer: {command: python train.py}\n")
    assert "only a run of it" in no_duration(plan_study(study))


def test_a_probe_measures_the_studys_own_model_once(tmp_path, fork_point):
    study = make_study(tmp_path / "study", fork_point)
    corpus = small_documents(tmp_path)
    plan = on_corpus(plan_study(study), corpus)
    cache = tmp_path / "cache"
    found = predict(plan, corpus, count_passes(plan), cache=cache)
    (rates,) = json.loads((cache / FILE).read_text()).values()
    assert len(rates["training"]) == 2  # EXP3 has another batch
    assert all(value > 0 for rate in rates["training"].values() for value in rate.values())
    assert rates["scoring"]["token_seconds"] > 0
    assert found.seconds > 0
    assert set(found.parts) == {"training", "scoring"}
    assert not (tmp_path / "study" / "branches" / "EXP1").exists()  # nothing was trained
    before = (cache / FILE).stat().st_mtime_ns
    assert predict(plan, corpus, count_passes(plan), cache=cache) == found
    assert (cache / FILE).stat().st_mtime_ns == before
