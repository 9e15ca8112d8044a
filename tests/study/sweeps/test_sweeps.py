"""The sweeps of the table, as entries over a field."""

from dataclasses import replace

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


def crossed(field, score):
    found = entries(field, "crossing")
    return {c.entry.key: c for c in choose_entries(found, lambda rows: {r.name: losses(score(r)) for r in rows})}


def test_the_crossing_curve_has_every_budget_and_every_n_whose_share_was_saved(field):
    found = crossed(field, lambda row: len(row.weights))
    shares = {key: (len(c.option.branches), c.option.horizon) for key, c in found.items() if "limited" in key}
    assert shares == {
        "limited/EXP1+EXP2+EXP3@300": (3, 100), "limited/EXP1+EXP2@600": (2, 300), "limited/EXP1+EXP2+EXP3@600": (3, 200),
        "limited/EXP1+EXP2+EXP3@900": (3, 300), "limited/EXP1+EXP2@1200": (2, 600), "limited/EXP1+EXP2+EXP3@1200": (3, 400),
    }  # fmt: skip
    assert {c.option.budget_tokens for c in found.values()} == {300, 600, 900, 1200}
    assert all(c.option.budget_tokens == c.entry.x for c in found.values())


def test_the_serial_run_may_merge_as_many_as_the_soup_and_all_that_it_has(field):
    found = crossed(field, lambda row: 1 / len(row.weights))  # the more the better
    assert (found["limited/EXP1+EXP2+EXP3@900"].option.k, found["serial/EXP1+EXP2+EXP3@900"].option.k) == (2, 6)
    assert found["serial@1200"].option.k == 12
    few = crossed(field, lambda row: len(row.weights))
    assert (
        few["limited/EXP1+EXP2@1200"].option.k,
        few["serial/EXP1+EXP2@1200"].option.k,
        few["serial@1200"].option.k,
    ) == (1, 2, 1)
    every = [option.k for option in found["serial@600"].decision.compared]
    assert every == [1, 2, 4, 6]  # the study's K, all six of the run, and the six of both soups


def test_each_limited_soup_is_compared_with_the_serial_run_free_and_matched(field):
    chosen = list(crossed(field, lambda row: len(row.weights)).values())
    pairs = [(m.entry.key, r.entry.key) for m, r in SWEEPS["crossing"].pairs(chosen) if m.entry.x == 1200]
    assert pairs == [
        ("limited/EXP1+EXP2@1200", "serial@1200"), ("limited/EXP1+EXP2@1200", "serial/EXP1+EXP2@1200"),
        ("limited/EXP1+EXP2+EXP3@1200", "serial@1200"), ("limited/EXP1+EXP2+EXP3@1200", "serial/EXP1+EXP2+EXP3@1200"),
    ]  # fmt: skip


def test_the_crossing_curve_is_made_by_every_study_that_does_not_say_otherwise():
    assert [s.kind for s in parse_sweeps(None, where="")] == ["crossing"]
    assert parse_sweeps([], where="") == ()
    assert "crossing" in [s.kind for s in parse_sweeps("paper", where="")]


def prescribed_rows(field):
    """Key -> the one row of each entry: nothing is asked."""
    found = {}
    for entry in entries(field, "prescribed"):
        (found[entry.key],) = options(entry)
    return found


def test_the_prescribed_rows_are_the_papers_three_branches_with_k_4_and_singles_with_k_12(field):
    found = prescribed_rows(field)
    assert {(key, len(o.branches), o.k, o.horizon) for key, o in found.items() if "model" not in key} == {
        ("trajectory-soup/limited/EXP1+EXP2+EXP3/loss", 3, 4, 400),
        ("trajectory-soup/extended/EXP1+EXP2+EXP3/loss", 3, 4, 1200),
        ("single/EXP1/N=3/loss", 1, 12, 1200), ("single/EXP2/N=3/loss", 1, 12, 1200),
        ("single/EXP3/N=3/loss", 1, 12, 1200), ("full-soup/limited/EXP1+EXP2+EXP3", 3, None, 400),
        ("full-soup/extended/EXP1+EXP2+EXP3", 3, None, 1200),
    }  # fmt: skip
    assert set(found["model-soup/limited/EXP1+EXP2+EXP3"].weights) == {"EXP1/4", "EXP2/4", "EXP3/4"}


def test_more_admitted_branches_are_prescribed_beside_the_first_three_and_a_clipped_k_is_said():
    five = [pool(f"EXP{i}") for i in range(1, 6)]
    wide = field_of(*five, admitted=tuple(p.branch for p in five))
    found = prescribed_rows(wide)
    assert found["trajectory-soup/extended/EXP1+EXP2+EXP3+EXP4+EXP5/loss"].branches == tuple(
        f"EXP{i}" for i in range(1, 6)
    )
    assert found["trajectory-soup/limited/EXP1+EXP2+EXP3+EXP4+EXP5/loss"].k == 2  # a fifth of twelve checkpoints
    said = {entry.key: entry.at.x for entry in entries(wide, "prescribed")}
    assert said["single/EXP1/N=5/loss"] == "Single EXP Merge (EXP1), K = 12 (all there are of 20)"
    assert said["single/EXP1/N=3/loss"] == "Single EXP Merge (EXP1), K = 12"


def test_both_rankings_stand_side_by_side_where_items_are_scored(field):
    def scored(p):
        worse = [replace(c, accuracy=1 - i / 100) for i, c in enumerate(p.candidates)]  # the early ones answer best
        return replace(p, candidates=tuple(worse))

    both = prescribed_rows(replace(field, pools=tuple(map(scored, field.pools))))
    by_loss, by_accuracy = (set(both[f"single/EXP1/N=3/{s}"].weights) for s in ("loss", "accuracy"))
    assert by_loss == by_accuracy == {f"EXP1/{i}" for i in range(1, 13)}
    by_loss, by_accuracy = (
        set(both[f"trajectory-soup/extended/EXP1+EXP2+EXP3/{s}"].weights) for s in ("loss", "accuracy")
    )
    assert {"EXP1/12", "EXP1/9"} <= by_loss
    assert {"EXP1/1", "EXP1/4"} <= by_accuracy
    assert not by_loss & by_accuracy


def test_a_prescribed_soup_is_compared_with_every_single_of_its_n_and_with_the_soups_of_its_setting(field):
    chosen = choose_entries(
        entries(field, "prescribed"), lambda rows: {row.name: losses(len(row.weights)) for row in rows}
    )
    pairs = [(m.entry.key, r.entry.key) for m, r in SWEEPS["prescribed"].pairs(chosen)]
    assert [r for m, r in pairs if m == "trajectory-soup/limited/EXP1+EXP2+EXP3/loss"] == [
        "model-soup/limited/EXP1+EXP2+EXP3", "full-soup/limited/EXP1+EXP2+EXP3",
        "single/EXP1/N=3/loss", "single/EXP2/N=3/loss", "single/EXP3/N=3/loss",
    ]  # fmt: skip
    assert len(pairs) == 10


def test_ablations_change_one_ingredient_of_the_prescribed_soup_and_choose_nothing(field):
    for kind in ("coefficients", "selections"):
        for entry in entries(field, kind):
            (option,) = options(entry)
            assert option.branches == ("EXP1", "EXP2", "EXP3")
            assert option.k in (4, None)


def test_prescribed_scaling_adds_branches_in_their_order_and_shows_where_the_paper_peaks(field):
    sizes = {}
    for entry in entries(field, "prescribed-scaling"):
        (option,) = options(entry)
        assert option.branches == ("EXP1", "EXP2", "EXP3")[: len(option.branches)]
        sizes.setdefault(len(option.branches), []).append(len(option.weights))
    assert sizes == {1: [1, 2, 4, 10, 11, 12], 2: [2, 4, 8, 10, 12, 14, 16], 3: [3, 6, 12, 15]}
