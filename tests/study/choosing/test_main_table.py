"""Entries are arithmetic on pools: no weight, no model."""

import dataclasses

import pytest

from tests.study.choosing.fields import EVERY, four_branches, options
from trajsoup.core.budget import Setting
from trajsoup.study.choosing.main_table import main_entries


@pytest.fixture
def field():
    return four_branches()


def test_the_main_table_has_the_papers_rows(field):
    names = [entry.name for entry in main_entries(field)]
    assert names[:2] == ["raw-final", "raw-best"]
    assert {"single/BAD", "single-merge", "model-soup/limited", "full-soup/extended", "trajectory-soup/limited"} <= set(
        names
    )


def test_a_rejected_branch_is_shown_alone_and_in_one_soup_of_all(field):
    (everyone,) = [entry for entry in main_entries(field) if entry.name == "trajectory-soup/all"]
    assert {option.branches for option in options(everyone)} == {tuple(pool.branch for pool in field.pools)}
    for entry in main_entries(field):
        if entry.name not in ("single/BAD", "trajectory-soup/all"):
            assert all("BAD" not in option.branches for option in options(entry)), entry.name


def test_limited_options_never_exceed_the_budget_of_one_branch(field):
    for entry in main_entries(field):
        if entry.name.endswith("/limited") or entry.name == "single-merge":
            assert max(option.budget_tokens for option in options(entry)) <= 12 * EVERY
            assert all(float(key.split("/")[1]) * EVERY <= o.horizon for o in options(entry) for key in o.weights)


def test_the_soup_and_the_single_merge_choose_among_the_same_k(field):
    by_name = {entry.name: entry for entry in main_entries(field)}
    single, soup = by_name["single-merge"], by_name["trajectory-soup/extended"]
    assert {option.k for option in options(single)} == {option.k for option in options(soup)} == {1, 2, 4}


def test_no_row_of_the_main_table_chooses_its_horizon_so_extended_is_never_limited(field):
    for entry in main_entries(field):
        if entry.name != "raw-best":  # a checkpoint is a position
            for option in options(entry):
                share = len(option.branches) if entry.setting is Setting.LIMITED else 1
                assert option.horizon == 12 * EVERY // share, entry.name


def test_a_limited_soup_takes_the_branches_that_pass_where_they_stop(field):
    late = dataclasses.replace(field, admitted_early={600: ("EXP1", "BAD"), 400: ("EXP1", "EXP2", "EXP3", "BAD")})
    found = {entry.name: {o.branches for o in options(entry)} for entry in main_entries(late)}
    assert {b for b in found["trajectory-soup/limited"] if len(b) == 2} == {("EXP1", "BAD")}
    assert ("EXP1", "EXP2", "BAD") in found["trajectory-soup/limited"]
    assert all("BAD" not in b for b in found["trajectory-soup/extended"])
    assert found["single-merge"] == {("EXP1",), ("EXP2",), ("EXP3",)}
