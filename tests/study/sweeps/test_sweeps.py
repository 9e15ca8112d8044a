"""The sweeps of the table, as entries over a field."""

import numpy as np
import pytest

from tests.study.choosing.fields import EVERY, field_of, four_branches, options, pool
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError, StudyError
from trajsoup.study.choosing.entries import choose_entries
from trajsoup.study.file.sweeps import parse_sweeps
from trajsoup.study.stages.sweeps import reported_rows
from trajsoup.study.sweeps.table import SWEEPS, sweep_entries


@pytest.fixture
def field():
    return four_branches()


def entries(field, name):
    return sweep_entries(field, parse_sweeps([name], where="")[0])


def test_limited_and_extended_budgets_of_the_horizon_curves(field):
    found = {entry.name: entry for entry in entries(field, "horizons")}
    limited, extended = (found[f"horizons/trajectory-soup/{s}@1200"] for s in ("limited", "extended"))
    assert {(len(o.branches), o.horizon) for o in options(limited)} == {(2, 600), (3, 400)}
    assert {o.budget_tokens for o in options(limited)} == {1200}
    assert {o.horizon for o in options(extended)} == {1200}
    assert limited.at.x == extended.at.x == 1200


def test_the_grid_has_every_subset_and_every_k(field):
    found = entries(field, "scaling")
    assert len(found) == 7 * 3
    assert {entry.at.series for entry in found} == {"N=1", "N=2", "N=3"}


def test_every_strategy_has_the_same_freedom_at_every_horizon(field):
    found = {entry.name.removeprefix("horizons/"): entry for entry in entries(field, "horizons")}
    single, soup = found["single-merge@1200"], found["trajectory-soup/extended@1200"]
    assert {o.branches for o in options(single)} == {("EXP1",), ("EXP2",), ("EXP3",)}
    assert {len(o.branches) for o in options(soup)} == {2, 3}
    assert {o.k for o in options(single)} == {o.k for o in options(soup)}
    assert len(options(found["raw-best@300"])) == 3 * 3


def test_the_frontier_spends_exactly_its_compute(field):
    found = entries(field, "frontier")
    assert {entry.at.series for entry in found} == {"Raw", "Single-Trajectory Merge", "Trajectory Soup"}
    for entry in found:
        assert {option.budget_tokens for option in options(entry)} == {entry.at.x}
    soups = {entry.at.x for entry in found if entry.at.series == "Trajectory Soup"}
    merges = {entry.at.x for entry in found if entry.at.series == "Single-Trajectory Merge"}
    assert {600, 1200, 3600} <= soups
    assert 1200 in soups & merges


def test_a_test_score_is_taken_of_the_subset_that_validation_prefers_in_each_cell_of_the_grid(field):
    group = entries(field, "scaling")
    scores = {o.name: losses(2 + i / 100) for i, o in enumerate(o for e in group for o in options(e))}
    chosen = choose_entries(group, lambda rows: {row.name: scores[row.name] for row in rows})
    reported = reported_rows(parse_sweeps(["scaling"], where=""), {"scaling": chosen}, rank_by=Signal.LOSS)
    cells = [(len({key.split("/")[0] for key in row.weights}), len(row.weights)) for row in reported]
    assert sorted(cells) == sorted((n, n * k) for n in (1, 2, 3) for k in (1, 2, 4))
    assert all(set(row.weights) <= {f"EXP{n}/{i}" for n in range(1, 4) for i in range(1, 13)} for row in reported)
    assert any(set(row.weights) == {"EXP1/12"} for row in reported)  # the first subset was made the best


def losses(value):
    return ValidationScores(losses=DocumentLosses(nll=np.array([value]), targets=np.array([1])))


def test_coefficients_differ_only_in_their_weights(field):
    found = {entry.at.x: entry for entry in entries(field, "coefficients")}
    weights = {name: options(entry)[-1].weights for name, entry in found.items()}
    assert set(map(frozenset, (w.keys() for w in weights.values()))) == {frozenset(weights["equal"])}
    assert weights["rank"] != weights["equal"] != weights["rsqrt"]


def test_the_sparse_pool_is_every_second_checkpoint_and_as_many_are_merged_at_every_horizon(field):
    found = entries(field, "sampling")
    assert {entry.at.x for entry in found} == {600, 900, 1200}
    for h in (600, 900, 1200):
        dense, other, sparse = (options(entry)[0] for entry in found if entry.at.x == h)
        assert len(dense.weights) == len(other.weights) == len(sparse.weights) == 6
        assert all(int(key.split("/")[1]) % 2 == 0 for key in sparse.weights)
        assert max(int(key.split("/")[1]) * EVERY for key in sparse.weights) <= h


def test_the_allocation_pairs_the_first_branch_with_the_third(field):
    found = entries(field, "allocation")
    assert found[0].at.series == "EXP1:EXP3"
    assert [entry.at.x for entry in found] == ["2:10", "4:8", "6:6", "8:4", "10:2"]


def test_the_papers_allocation_is_two_to_fourteen_up_to_fourteen_to_two():
    wide = field_of(pool("EXP1", count=24), pool("EXP3", count=24), admitted=("EXP1", "EXP3"))
    assert [e.at.x for e in entries(wide, "allocation")] == [f"{k}:{16 - k}" for k in range(2, 16, 2)]
    dense = [e for e in entries(wide, "sampling") if e.at.series.startswith("dense")]
    assert {len(options(e)[0].weights) for e in dense} == {12}


def test_one_admitted_branch_leaves_pairs_nothing_to_compare(field):
    alone = field_of(*field.pools, admitted=("EXP1",))
    for name in ("allocation", "sampling", "interpolation"):
        assert entries(alone, name) == ()


@pytest.mark.parametrize("kind", list(SWEEPS))
def test_every_row_of_every_sweep_sums_to_one(field, kind):
    for entry in entries(field, kind):
        for option in options(entry):
            assert sum(option.weights.values()) == pytest.approx(1)


def test_a_pair_that_does_not_exist_is_refused(field):
    sweep = parse_sweeps({"mine": {"kind": "allocation", "branches": ["EXP1", "EXP9"]}}, where="")[0]
    with pytest.raises(SelectionError, match="EXP9"):
        sweep_entries(field, sweep)


def test_a_setting_that_means_nothing_to_a_sweep_is_refused():
    with pytest.raises(StudyError, match=r"merge_size means nothing to scaling: it belongs to allocation, sampling"):
        parse_sweeps({"scaling": {"merge_size": 4}}, where="sweeps")


def test_soups_are_compared_with_the_best_single_merge_of_their_budget(field):
    chosen = choose_entries(
        entries(field, "horizons"), lambda rows: {row.name: losses(len(row.weights)) for row in rows}
    )
    pairs = SWEEPS["horizons"].pairs(chosen)
    assert [(model.entry.key, reference.entry.key) for model, reference in pairs if model.entry.x == 1200] == [
        ("trajectory-soup/limited@1200", "single-merge@1200"),
        ("trajectory-soup/extended@1200", "single-merge@1200"),
    ]
