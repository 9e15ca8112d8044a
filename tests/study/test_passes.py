"""What a plan says will be scored, against what a study of the repository did score."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trajsoup.lm.slopes import BATCH_TOKENS
from trajsoup.study.file.study import load_study
from trajsoup.study.file.sweeps import parse_sweeps
from trajsoup.study.passes import Passes, count_passes
from trajsoup.study.train.plan import plan_study

EXAMPLE = Path(__file__).parents[1] / "data" / "example-study"


def records(name):
    return json.loads((EXAMPLE / "records" / name).read_text())


def test_the_plan_counts_every_model_that_is_scored_and_not_the_checkpoints_alone():
    passes = count_passes(plan_study(load_study(EXAMPLE / "study.yaml")))
    checkpoints = records("validation.json")["checkpoints"]
    rows = records("rows.json")["rows"]
    points = [
        p
        for path in sorted((EXAMPLE / "records" / "sweeps").iterdir())
        for p in records(f"sweeps/{path.name}")["points"]
    ]
    compared = {tuple(sorted(r["weights"].items())) for r in [*rows, *points]} | {
        ((c["key"], 1.0),) for c in checkpoints
    }
    reported = {
        tuple(sorted(r["weights"].items())) for r in [*rows, *(p for p in points if p["test_loss"] is not None)]
    }
    assert passes.probe == len(checkpoints) == 36
    assert passes.validation >= 0.9 * len(compared)
    assert passes.test + passes.swept == pytest.approx(
        len(reported), rel=0.1
    )  # which of two rows validation prefers is made up


def test_tokens_are_those_of_each_set():
    plan = plan_study(load_study(EXAMPLE / "study.yaml"))
    assert (
        Passes(validation=3, answered=0, probe=2, test=1, swept=4, ingredients=9).tokens(plan)
        == 3 * 8_000 + 2 * 8_000 + 5 * 12_000
    )


def test_methods_that_measure_and_learn_are_counted_too():
    study = load_study(EXAMPLE / "study.yaml")
    alone, beside = (
        count_passes(plan_study(replace(study, sweeps=parse_sweeps(sweeps, where="")))) for sweeps in ([], ["methods"])
    )
    assert beside.validation > alone.validation
    assert beside.swept > alone.swept + 20
    steps = 50  # of each of two learned soups and two trainable averagings
    teams = 2 + len(study.recipes)  # Limited, Extended, every branch alone
    assert (alone.gradient_tokens, beside.gradient_tokens) == (0, 4 * teams * steps * BATCH_TOKENS)


def test_a_row_costs_as_many_ingredients_as_it_averages():
    passes = count_passes(plan_study(load_study(EXAMPLE / "study.yaml")))
    singles = 1 + 2 * passes.probe  # the fork point; every checkpoint on validation and on the probe
    assert passes.ingredients > singles + 2 * (passes.validation - 1 - passes.probe)
