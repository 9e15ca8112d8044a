"""`plan STUDY --budget`: from records to an answer in words."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from tests.core.test_price import BRANCHES, T, a, b, losses_at
from tests.study.studies import SMALL, write_study
from trajsoup.cli.app import app
from trajsoup.core.budget import Setting
from trajsoup.core.splits import Split
from trajsoup.errors import StudyError
from trajsoup.study.file.study import load_study
from trajsoup.study.price import Machines, Sum, parse_budget, price
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.files import writing
from trajsoup.study.records.plan import PlanRecord
from trajsoup.study.records.theory import CountEstimate, MeasuredSoup, TheoryRecord


def theory(*, spread=1.0, noise=0.0):
    """A record of soups on the law of tests/core/test_price.py."""
    measured = []
    for t in (300, 600, 900, T):
        law = lambda n, t, k: a(t, k) + spread * b(t, k) / n + noise * t / T  # noqa: E731
        for (names, k), loss in losses_at(t, law=law).soups.items():
            measured.append(MeasuredSoup(horizon=t, branches=tuple(sorted(names)), k=k, loss=loss))
    empty = {"counts": (), "cells": (), "cells_error": None, "soups": (), "best": (), "best_k_falls": None}
    worth = {"worth_of_branch": None, "worth_of_tokens": None, "budget": {}, "held_out": (), "words": ()}
    return TheoryRecord(
        inputs={}, split=Split.VALIDATION, horizon=T, branches=BRANCHES, measured=tuple(measured), **empty, **worth
    )


PLAN = PlanRecord(
    inputs={},
    title="it",
    seed=0,
    setting=Setting.EXTENDED,
    horizon=T,
    checkpoint_every=50,
    sequence_length=10,
    total_tokens=4 * T,
    total_params=10,
    active_params=10,
    flops_per_token=60.0,
    train_flops=1.0,
    epochs=1.0,
    corpus={"validation": 20},
    branches={},
    baseline="EXP1",
)


@pytest.fixture
def study(tmp_path):
    path = write_study(tmp_path, SMALL)
    output = load_study(path).output
    with writing(output) as records:
        records.write(PLAN)
        records.write(theory(spread=6.0))
    return path, output


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [("3e21FLOPs", 3e21, "FLOPs"), ("600B", 600e9, "tokens"), ("2000USD", 2000, "USD"), ("$2,000", 2000, "USD")],
)
def test_a_budget_is_read_as_people_write_it(text, amount, unit):
    assert parse_budget(text) == Sum(amount=amount, unit=unit)


def test_a_budget_that_cannot_be_read_says_how_to_write_it():
    with pytest.raises(StudyError, match=r"'much': write 3e21FLOPs, 600B \(tokens\) or 2000USD"):
        parse_budget("much")


def test_the_answer_names_branches_tokens_k_and_what_the_next_tokens_buy(study):
    _, output = study
    found = price(output, parse_budget("2400"), machines=Machines())
    chosen = next(offer for offer in found.offers if offer.n_branches == found.chosen)
    assert chosen.loss == min(offer.loss for offer in found.offers)
    assert found.words[0].startswith(f"Run {found.chosen} branches of ")
    assert any("next 10 % of the budget" in sentence for sentence in found.words)
    assert any("One more branch is worth" in sentence for sentence in found.words)
    assert found.chosen_without.keys() == set(BRANCHES)
    assert all(offer.low <= offer.loss <= offer.high for offer in found.offers)


def test_one_trajectory_is_an_answer(study):
    _, output = study
    with writing(output) as records:
        records.write(theory(spread=0.0))
    found = price(output, parse_budget("1200"), machines=Machines())
    assert found.chosen == 1
    assert found.words[0].startswith("Run one trajectory of ")


def test_a_budget_far_beyond_what_was_measured_is_not_answered(study):
    _, output = study
    found = price(output, parse_budget("1M"), machines=Machines())
    assert found.chosen is None
    assert "more than this study can speak for" in found.words[0]


def test_dollars_need_a_price_and_hours_a_rate(study):
    _, output = study
    with pytest.raises(StudyError, match="needs --usd-per-hour and --flops-per-second"):
        price(output, parse_budget("5USD"), machines=Machines())
    machines = Machines(accelerators=4, per_branch=2, flops_per_second=10.0, dollars_per_hour=2.0)
    found = price(output, parse_budget("5USD"), machines=machines)
    for offer in found.offers:
        assert offer.dollars == pytest.approx(5)
        waves = -(-offer.n_branches // 2)  # two branches of two accelerators at once
        assert offer.hours == pytest.approx(waves * offer.flops / offer.n_branches / 20 / 3600)
        assert offer.utilisation == pytest.approx(offer.n_branches / (2 * waves))


def test_seeds_are_averaged_and_left_out_in_turn(study):
    _, output = study
    for seed, noise in ((1, 0.01), (2, -0.01)):
        (output / "seeds" / str(seed)).mkdir(parents=True)
        with writing(output / "seeds" / str(seed)) as records:
            records.write(theory(noise=noise))
    found = price(output, parse_budget("2400"), machines=Machines(), seeds=3)
    assert found.chosen_without.keys() == {"seed 0", "seed 1", "seed 2"}
    assert all(offer.low < offer.loss < offer.high for offer in found.offers)


def test_the_command_prints_tables_and_words_or_json(study):
    path, _ = study
    shown = CliRunner().invoke(app, ["plan", str(path), "--budget", "2400"])
    assert shown.exit_code == 0, shown.output
    assert "N branches for 2.4k tokens" in shown.output
    assert "Run " in shown.output
    data = json.loads(CliRunner().invoke(app, ["plan", str(path), "--budget", "2400", "--json"]).stdout)
    assert {offer["n_branches"] for offer in data["offers"]} == set(range(1, 9))


def test_without_a_pilot_it_says_what_one_would_tell_and_how_to_run_it(tmp_path):
    path = write_study(tmp_path, SMALL)
    shown = CliRunner().invoke(app, ["plan", str(path), "--budget", "600B"])
    assert shown.exit_code == 1
    for words in ("A pilot of 5%", "30B tokens", "3 branches of 10B", "trajsoup run PILOT", "It would tell"):
        assert words in shown.output


def test_a_record_of_before_says_how_to_make_it_again(study):
    _, output = study
    count = CountEstimate(
        k=1, limit=2.0, spread=Estimate(value=0.1, count=2), v_intra=None, v_inter=None, bias_change=0.0
    )
    with writing(output) as records:
        records.write(dataclasses.replace(theory(), measured=(), counts=(count,)))
    with pytest.raises(StudyError, match=r"theory.json was made before .*`trajsoup run` makes it again"):
        price(output, parse_budget("600B"), machines=Machines())


def test_runs_that_tell_no_flops_are_refused(study):
    _, output = study
    with writing(output) as records:
        records.write(dataclasses.replace(PLAN, flops_per_token=None))
    with pytest.raises(StudyError, match="does not know the FLOPs of a token"):
        price(output, parse_budget("600B"), machines=Machines())
