import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_selection import pool_of
from trajsoup.core.coefficients import WEIGHTINGS, coefficients
from trajsoup.core.methods import METHODS
from trajsoup.core.selection import SELECTIONS
from trajsoup.core.soup import Row, soup_row
from trajsoup.errors import BlendError, SelectionError

LOSSES = {"EXP1": (2.31, 2.27, 2.29, 2.25), "EXP2": (2.28, 2.33, 2.26, 2.30), "EXP3": (2.24, 2.35, 2.32, 2.34)}
POOLS = [pool_of(*losses, branch=branch) for branch, losses in LOSSES.items()]


def apply(row: Row, models: dict[str, np.ndarray]) -> np.ndarray:
    return sum(weight * models[key] for key, weight in row.weights.items())


def models_of(pools) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {c.key: rng.normal(size=5) for pool in pools for c in pool.candidates}


@given(n=st.integers(1, 3), k=st.integers(1, 4), scheme=st.sampled_from(list(WEIGHTINGS)))
def test_averaging_anchors_equals_the_flat_weighted_average(n, k, scheme):
    """eq:trajectory-soup: the two stages are one sum, for every coefficient scheme."""
    models = models_of(POOLS)
    anchors = [apply(soup_row([pool], k=k, scheme=scheme), models) for pool in POOLS[:n]]
    flat = apply(soup_row(POOLS[:n], k=k, scheme=scheme), models)
    np.testing.assert_allclose(np.mean(anchors, axis=0), flat, rtol=1e-12)


@given(n=st.integers(1, 3), k=st.integers(1, 4))
def test_equal_coefficients_make_the_plain_mean_of_the_nk_checkpoints(n, k):
    row = soup_row(POOLS[:n], k=k)
    assert row.uniform
    assert set(row.weights.values()) == {1 / k / n}
    models = models_of(POOLS)
    np.testing.assert_allclose(apply(row, models), np.mean([models[key] for key in row.weights], axis=0), rtol=1e-12)


def test_one_branch_recovers_selected_averaging_inside_a_trajectory():
    row = soup_row(POOLS[:1], k=2)
    assert row.weights == {"EXP1/4": 0.5, "EXP1/2": 0.5}


def test_k_of_one_averages_the_best_checkpoint_of_each_branch():
    row = soup_row(POOLS, k=1)
    assert row.weights == pytest.approx({"EXP1/4": 1 / 3, "EXP2/3": 1 / 3, "EXP3/1": 1 / 3})


def test_coefficients_go_by_rank_not_by_tokens():
    row = soup_row(POOLS[:2], k=3, scheme="rank")
    assert row.weights["EXP1/4"] == pytest.approx(1 / 6 / 2)  # best of EXP1
    assert row.weights["EXP1/3"] == pytest.approx(3 / 6 / 2)  # third of EXP1
    assert row.weights["EXP2/3"] == pytest.approx(1 / 6 / 2)


@pytest.mark.parametrize("rule", list(SELECTIONS))
@pytest.mark.parametrize("scheme", list(WEIGHTINGS))
def test_every_row_sums_to_one(rule, scheme):
    if SELECTIONS[rule].pooled and scheme != "equal":
        with pytest.raises(SelectionError, match=r"pools all branches: use equal coefficients"):
            soup_row(POOLS, k=2, rule=rule, scheme=scheme)
        return
    assert soup_row(POOLS, k=2, rule=rule, scheme=scheme).total == pytest.approx(1, abs=1e-14)


def test_global_weighs_checkpoints_alike_and_so_branches_unequally():
    row = soup_row([pool_of(2.0, 2.1, 2.2, branch="EXP1"), pool_of(3.0, 3.1, 2.15, branch="EXP2")], k=2, rule="global")
    assert row.weights == {"EXP1/1": 0.25, "EXP1/2": 0.25, "EXP2/3": 0.25, "EXP1/3": 0.25}


def test_full_soup_pools_branches_of_unequal_length():
    row = soup_row([pool_of(2.0, branch="EXP1"), pool_of(2.0, 2.0, 2.0, branch="EXP2")], rule="all")
    assert set(row.weights.values()) == {0.25}


def test_the_strategies_are_their_selections():
    selections = {"trajectory-soup": "top-k", "single-merge": "top-k", "model-soup": "final", "full-soup": "all"}
    assert {name: METHODS[name].select for name in selections} == selections


def test_a_tensor_has_the_weights_of_its_own_name_then_of_its_part_then_those_for_all():
    own, layer = {"a": 1.0}, {"a": 0.25, "b": 0.75}
    row = Row(name="soup", weights={"a": 0.5, "b": 0.5}, groups={"model.layers.3.mlp.weight": own, "layer 3": layer})
    found = {
        name: dict(row.of_group(row.group_of(name, (2, 2))).weights)
        for name in ("model.layers.3.mlp.weight", "model.layers.3.attn.weight", "lm_head.weight")
    }
    assert list(found.values()) == [own, layer, {"a": 0.5, "b": 0.5}]
    assert not row.uniform
    assert row.of_group(None).uniform


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"layer 0": {"b": 1.0}}, "weighs b in 'layer 0' only"),
        ({"layer 0": {}}, "no ingredient"),
        ({"layer 0": {"a": 0.0}}, "gives a the weight 0"),
    ],
)
def test_weights_by_group_that_make_no_soup_are_refused(groups, message):
    with pytest.raises(BlendError, match=message):
        Row(name="soup", weights={"a": 1.0}, groups=groups)
    with pytest.raises(BlendError, match="the weights of 'layer 0' sum to 2, not 1"):
        Row(name="soup", weights={"a": 1.0}, groups={"layer 0": {"a": 2.0}}).require_sum_one()


def test_a_branch_given_twice_is_refused_rather_than_counted_once():
    with pytest.raises(SelectionError, match=r"EXP1/4 was selected 2 times: name each run only once"):
        soup_row([POOLS[0], POOLS[0]], k=1)


def test_no_branch_is_no_soup():
    with pytest.raises(SelectionError, match="no branch to select from"):
        soup_row([], k=1)


@pytest.mark.parametrize("weight", [0.0, math.nan, math.inf])
def test_a_weight_that_is_zero_or_not_finite_is_refused(weight):
    with pytest.raises(BlendError, match=r"gives a the weight .*drop it"):
        Row(name="soup", weights={"a": weight})


def test_a_row_without_ingredients_is_refused():
    with pytest.raises(BlendError, match="no ingredient"):
        Row(name="soup", weights={})


def test_a_sum_other_than_one_is_said_and_normalising_mends_it():
    row = Row(name="soup", weights={"a": 1.0, "b": 3.0})
    with pytest.raises(BlendError, match=r"sum to 4, not 1: correct them, or pass --normalize"):
        row.require_sum_one()
    assert row.normalized().weights == {"a": 0.25, "b": 0.75}
    row.normalized().require_sum_one()


def test_weights_written_with_six_digits_count_as_a_sum_of_one():
    row = Row(name="soup", weights={"a": 0.333333, "b": 0.333333, "c": 0.333334})
    row.require_sum_one()
    assert not row.uniform


def test_weights_that_cancel_cannot_be_normalised():
    with pytest.raises(BlendError, match="cannot be normalised"):
        Row(name="soup", weights={"a": 1.0, "b": -1.0}).normalized()


def test_extrapolation_is_a_row_but_not_a_mean():
    row = Row(name="soup", weights={"a": 1.5, "b": -0.5})
    row.require_sum_one()
    assert not row.uniform


def test_equal_weights_that_do_not_sum_to_one_are_no_mean():
    assert not Row(name="soup", weights={"a": 0.4, "b": 0.4}).uniform
    assert Row(
        name="soup", weights=dict(zip("abc", coefficients("equal", POOLS[0].candidates[:3]), strict=True))
    ).uniform
