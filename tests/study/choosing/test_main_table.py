"""Entries are arithmetic on pools: no weight, no model."""

import numpy as np
import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError
from trajsoup.study.choosing.entries import choose_entries
from trajsoup.study.choosing.field import Field
from trajsoup.study.choosing.main_table import main_entries
from trajsoup.study.file.evaluation import EvaluationPlan
from trajsoup.study.file.sweeps import SweepKind, parse_sweeps
from trajsoup.study.stages.sweeps import reported_rows, sweep_entries

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
    evaluation = EvaluationPlan(ks=(1, 2, 4), horizons=4)
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


def test_every_strategy_has_the_same_freedom_at_every_horizon(field):
    found = {entry.name.removeprefix("horizons/"): entry for entry in entries(field, "horizons")}
    single, soup = found["single-merge@1200"], found["trajectory-soup/extended@1200"]
    assert {o.branches for o in single.options} == {("EXP1",), ("EXP2",), ("EXP3",)}
    assert {len(o.branches) for o in soup.options} == {2, 3}
    assert {o.k for o in single.options} == {o.k for o in soup.options}
    assert len(found["raw-best@300"].options) == 3 * 3


def test_the_frontier_spends_exactly_its_compute(field):
    found = entries(field, "frontier")
    assert {entry.at.series for entry in found} == {"Raw", "Single-Trajectory Merge", "Trajectory Soup"}
    for entry in found:
        assert {option.budget_tokens for option in entry.options} == {entry.at.x}
    soups = {entry.at.x for entry in found if entry.at.series == "Trajectory Soup"}
    merges = {entry.at.x for entry in found if entry.at.series == "Single-Trajectory Merge"}
    assert {600, 1200, 3600} <= soups
    assert 1200 in soups & merges


def test_a_test_score_is_taken_of_the_subset_that_validation_prefers_in_each_cell_of_the_grid(field):
    group = entries(field, "scaling")
    scores = {o.name: losses(2 + i / 100) for i, o in enumerate(o for e in group for o in e.options)}
    chosen = choose_entries(group, scores, rank_by=Signal.LOSS)
    reported = reported_rows({"scaling": chosen}, rank_by=Signal.LOSS)
    cells = [(len({key.split("/")[0] for key in row.weights}), len(row.weights)) for row in reported]
    assert sorted(cells) == sorted((n, n * k) for n in (1, 2, 3) for k in (1, 2, 4))
    assert all(set(row.weights) <= {f"EXP{n}/{i}" for n in range(1, 4) for i in range(1, 13)} for row in reported)
    assert any(set(row.weights) == {"EXP1/12"} for row in reported)  # the first subset was made the best


def losses(value):
    return ValidationScores(losses=DocumentLosses(nll=np.array([value]), targets=np.array([1])))


def test_coefficients_differ_only_in_their_weights(field):
    found = {entry.at.x: entry for entry in entries(field, "coefficients")}
    weights = {name: entry.options[-1].weights for name, entry in found.items()}
    assert set(map(frozenset, (w.keys() for w in weights.values()))) == {frozenset(weights["equal"])}
    assert weights["rank"] != weights["equal"] != weights["rsqrt"]


def test_the_sparse_pool_is_every_second_checkpoint_and_as_many_are_merged_at_every_horizon(field):
    found = entries(field, "sampling")
    assert {entry.at.x for entry in found} == {600, 900, 1200}
    for h in (600, 900, 1200):
        dense, other, sparse = (entry.options[0] for entry in found if entry.at.x == h)
        assert len(dense.weights) == len(other.weights) == len(sparse.weights) == 6
        assert all(int(key.split("/")[1]) % 2 == 0 for key in sparse.weights)
        assert max(int(key.split("/")[1]) * EVERY for key in sparse.weights) <= h


def test_the_allocation_pairs_the_first_branch_with_the_third(field):
    found = entries(field, "allocation")
    assert found[0].at.series == "EXP1:EXP3"
    assert [entry.at.x for entry in found] == ["2:10", "4:8", "6:6", "8:4", "10:2"]


def test_the_papers_allocation_is_two_to_fourteen_up_to_fourteen_to_two(field):
    wide = Field(
        pools=tuple(pool(name, count=24) for name in ("EXP1", "EXP3")), admitted=("EXP1", "EXP3"), baseline="EXP1",
        evaluation=field.evaluation,
    )  # fmt: skip
    assert [e.at.x for e in entries(wide, "allocation")] == [f"{k}:{16 - k}" for k in range(2, 16, 2)]
    dense = [e for e in entries(wide, "sampling") if e.at.series.startswith("dense")]
    assert {len(e.options[0].weights) for e in dense} == {12}


def test_one_admitted_branch_leaves_pairs_nothing_to_compare(field):
    alone = Field(pools=field.pools, admitted=("EXP1",), baseline="EXP1", evaluation=field.evaluation)
    for name in ("allocation", "sampling", "interpolation"):
        assert entries(alone, name) == ()


@pytest.mark.parametrize("kind", list(SweepKind))
def test_every_row_of_every_sweep_sums_to_one(field, kind):
    for entry in entries(field, kind.value):
        for option in entry.options:
            assert sum(option.weights.values()) == pytest.approx(1)


def test_a_pair_that_does_not_exist_is_refused(field):
    sweep = parse_sweeps({"mine": {"kind": "allocation", "branches": ["EXP1", "EXP9"]}}, where="")[0]
    with pytest.raises(SelectionError, match="EXP9"):
        sweep_entries(field, sweep)
