"""All methods in one sweep: levels, what each consumed, pairs against Trajectory Soup, and the section that shows it."""

import pytest

import tests.golden.study as golden
from tests.core.test_methods import scored
from tests.golden.entry import run_found
from tests.study.choosing.fields import four_branches
from trajsoup.core.methods.table import METHODS
from trajsoup.core.signal import Signal
from trajsoup.report.sections import neighbours
from trajsoup.study.choosing.entries import choose_entries
from trajsoup.study.file.sweeps import parse_sweeps
from trajsoup.study.records.files import Records
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.sweeps import methods as module
from trajsoup.study.sweeps.table import sweep_entries

SETTINGS = """
corpus: {train: documents.txt}
evaluate: {validation_tokens: 1k, test_tokens: 1k, probe_tokens: 1k, ks: [1, 2], horizons: 2, resamples: 50, tolerance: 0.5}
sweeps: [methods]
"""
QUICK = (
    ("trajectory-soup", {}),
    ("lawa", {}),
    ("extra-merge", {}),
    ("greedy-soup", {}),
    ("learned-soup", {"steps": "1"}),
    ("trainable-averaging", {"on": "train", "steps": "1", "lr": "0.01"}),
    ("model-stock", {}),
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("methods")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "VARIANTS", QUICK)
        fork_point, runs = golden._write_runs(folder)
        found = run_found(folder, fork_point, runs, settings=SETTINGS, corpus=golden._corpus(folder))
    return Records(found.parent)


def test_every_method_of_the_table_but_the_raw_ones_is_compared():
    named = {name for name, _ in module.VARIANTS}
    assert named == {name for name in METHODS if not name.startswith("raw-")}
    for name, given in module.VARIANTS:
        METHODS[name].settings(given)


def test_a_method_of_one_trajectory_stands_in_all_three_levels_and_one_of_several_in_two():
    found = [e.key for e in sweep_entries(four_branches(), parse_sweeps(["methods"], where="")[0])]
    assert {"lawa/one", "lawa/limited", "lawa/extended", "single-merge/one", "model-soup/limited"} <= set(found)
    assert not {"single-merge/limited", "model-soup/one", "trajectory-soup/one"} & set(found)
    assert not any(key.startswith("model-stock") for key in found)  # no fork point is known there


@pytest.mark.slow  # it learns and scores every level of a study
def test_the_record_has_every_method_with_what_it_consumed_and_its_difference_from_trajectory_soup(swept):
    sweep = swept.require(SweepRecord, "methods")
    points = {p.row.removeprefix("methods/"): p for p in sweep.points}
    assert {p.strategy for p in sweep.points} == {name for name, _ in QUICK}
    assert points["lawa/limited"].chosen_on.validation_passes == 2  # two places where it may end a branch
    assert points["greedy-soup/limited"].chosen_on.validation_passes > len(points["greedy-soup/limited"].weights)
    learned = points["learned-soup/1/limited"]
    assert (learned.chosen_on.gradient_tokens > 0, learned.chosen_on.validation_passes) == (True, 0)
    assert points["model-stock/extended"].groups
    assert "fork-point" in points["model-stock/extended"].weights
    assert points["lawa/one"].budget_tokens >= points["lawa/limited"].budget_tokens > 0
    for p in sweep.points:
        for weights in (p.weights, *(p.groups or {}).values()):
            assert sum(weights.values()) == pytest.approx(1)
    soups = {p.row for p in sweep.points if p.strategy == "trajectory-soup"}
    losses = [c for c in sweep.comparisons if c.signal is Signal.LOSS]
    against = {c.model: c.reference for c in losses if c.reference in soups}
    assert against.keys() == {p.row for p in sweep.points} - soups
    assert set(against.values()) == soups
    assert against["methods/lawa/one"] == against["methods/lawa/limited"] == "methods/trajectory-soup/limited"
    levels = {c.model: c.reference for c in losses if c.reference not in soups}
    assert levels["methods/lawa/limited"] == levels["methods/lawa/extended"] == "methods/lawa/one"
    assert "methods/model-stock/limited" not in levels


@pytest.mark.slow  # it learns and scores every level of a study
def test_the_section_says_what_won_here_and_lists_every_model(swept):
    shown = neighbours.section(swept)
    assert shown is not None
    sweep = swept.require(SweepRecord, "methods")
    (table,), (apart, budget) = shown.tables, shown.figures
    assert len(table.rows) == len(sweep.points)
    assert apart.says.startswith("At a budget of T, Trajectory Soup has ")
    assert "At a budget of N T, Trajectory Soup has " in apart.says
    assert "Of 4 methods of one trajectory, the mean over N branches of T/N is clearly better" in apart.says
    column = table.columns.index("loss from one branch of T")
    assert (
        sum(row.cells[column].value is not None for row in table.rows) == 9
    )  # Limited branches are too short for Extra-Merge
    assert len(budget.spec()["data"]) == len(apart.spec()["data"]) == 3


def test_a_method_that_looks_at_the_end_may_end_a_branch_earlier_and_is_charged_all_the_same():
    field = four_branches()
    entries = sweep_entries(field, parse_sweeps(["methods"], where="")[0])

    def early(rows):  # the earlier its checkpoints, the better a row
        return {r.name: scored(max(int(key.partition("/")[2]) for key in r.weights)) for r in rows}

    (lawa,) = choose_entries([e for e in entries if e.key == "lawa/extended"], early)
    assert (lawa.decision.free, lawa.decision.among) == (("horizon",), module.PARTS)
    assert lawa.option.horizon == field.horizon // module.PARTS
    assert set(lawa.decision.trained.values()) == {field.horizon}
    (soup,) = choose_entries([e for e in entries if e.key == "trajectory-soup/extended"], early)
    assert (soup.decision.free, soup.option.horizon) == (("k",), field.horizon)
