"""Entries are arithmetic on pools: no weight, no model."""

import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.errors import SelectionError
from trajsoup.study.comparisons import main_entries
from trajsoup.study.evaluation_section import Evaluation, SweepKind, parse_sweeps
from trajsoup.study.field import Field
from trajsoup.study.sweeps import sweep_entries

EVERY = 100


def pool(branch, count=12, offset=0.0):
    return Pool(
        branch=branch,
        candidates=tuple(
            Candidate(key=f"{branch}/{i}", branch=branch, tokens=EVERY * i, val_loss=2 + offset + 1 / i)
            for i in range(1, count + 1)
        ),
    )


@pytest.fixture
def field():
    pools = (pool("EXP1"), pool("EXP2", offset=0.1), pool("EXP3", offset=0.2), pool("BAD", offset=1.0))
    evaluation = Evaluation(ks=(1, 2, 4), horizons=4)
    return Field(pools=pools, admitted=("EXP1", "EXP2", "EXP3"), baseline="EXP1", evaluation=evaluation)


def entries(field, name):
    return sweep_entries(field, parse_sweeps([name], where="")[0])


def test_the_main_table_has_the_papers_rows(field):
    names = [entry.name for entry in main_entries(field)]
    assert names[:2] == ["raw-final", "raw-best"]
    assert {"single/BAD", "single-merge", "model-soup/limited", "full-soup/extended", "trajectory-soup/limited"} <= set(
        names
    )


def test_a_rejected_branch_is_shown_alone_and_in_no_soup(field):
    for entry in main_entries(field):
        if entry.name not in ("single/BAD",):
            assert all("BAD" not in option.branches for option in entry.options), entry.name


def test_limited_options_never_exceed_the_budget_of_one_branch(field):
    for entry in main_entries(field):
        if entry.name.endswith("/limited") or entry.name == "single-merge":
            assert max(option.budget_tokens for option in entry.options) <= 12 * EVERY
            assert all(float(key.split("/")[1]) * EVERY <= o.horizon for o in entry.options for key in o.weights)


def test_the_soup_and_the_single_merge_choose_among_the_same_k(field):
    by_name = {entry.name: entry for entry in main_entries(field)}
    single, soup = by_name["single-merge"], by_name["trajectory-soup/extended"]
    assert {option.k for option in single.options} == {option.k for option in soup.options} == {1, 2, 4}
    assert {option.horizon for option in single.options} == {option.horizon for option in soup.options}


def test_limited_and_extended_budgets_of_the_horizon_curves(field):
    found = {entry.name: entry for entry in entries(field, "horizons")}
    limited, extended = (found[f"horizons/trajectory-soup/{s}@1200"] for s in ("limited", "extended"))
    assert {(len(o.branches), o.horizon) for o in limited.options} == {(2, 600), (3, 400)}
    assert {o.budget_tokens for o in limited.options} == {1200}
    assert {o.horizon for o in extended.options} == {1200}
    assert limited.at.x == extended.at.x == 1200


def test_the_grid_has_every_subset_and_every_k(field):
    found = entries(field, "scaling")
    assert len(found) == 7 * 3
    assert {entry.at.series for entry in found} == {"N=1", "N=2", "N=3"}


def test_coefficients_differ_only_in_their_weights(field):
    found = {entry.at.x: entry for entry in entries(field, "coefficients")}
    weights = {name: entry.options[-1].weights for name, entry in found.items()}
    assert set(map(frozenset, (w.keys() for w in weights.values()))) == {frozenset(weights["equal"])}
    assert weights["rank"] != weights["equal"] != weights["rsqrt"]


def test_the_sparse_pool_is_every_second_checkpoint(field):
    sparse = entries(field, "sampling")[-1].options[0]
    assert all(int(key.split("/")[1]) % 2 == 0 for key in sparse.weights)


@pytest.mark.parametrize("kind", list(SweepKind))
def test_every_row_of_every_sweep_sums_to_one(field, kind):
    for entry in entries(field, kind.value):
        for option in entry.options:
            assert sum(option.weights.values()) == pytest.approx(1)


def test_a_pair_that_does_not_exist_is_refused(field):
    sweep = parse_sweeps({"mine": {"kind": "allocation", "branches": ["EXP1", "EXP9"]}}, where="")[0]
    with pytest.raises(SelectionError, match="EXP9"):
        sweep_entries(field, sweep)
