"""Variances from losses alone, on simulated quadratics whose variances are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trajsoup.core.estimators import (
    SoupLosses,
    bias_changes,
    components,
    fit_branches,
    member_gap,
)
from trajsoup.errors import TheoryError

D = 5
FULL = np.diag([4.0, 2.0, 1.0, 0.5, 0.25])
SINGULAR = np.diag([4.0, 2.0, 0.0, 0.0, 0.0])
FLOOR = 1.5  # L*


def loss(x: np.ndarray, h: np.ndarray = FULL) -> float:
    return FLOOR + 0.5 * float(x @ h @ x)


def names(n: int) -> list[str]:
    return [f"EXP{i + 1}" for i in range(n)]


def losses_of(theta: np.ndarray, *, counts=None, h: np.ndarray = FULL) -> SoupLosses:
    """Score every soup of every subset of branches at every K. theta: branches x ranks x parameters."""
    n, kmax, _ = theta.shape
    branches = names(n)
    soups = {}
    for k in counts or range(1, kmax + 1):
        anchors = theta[:, :k].mean(axis=1)
        for size in range(1, n + 1):
            for chosen in itertools.combinations(range(n), size):
                soups[frozenset(branches[i] for i in chosen), k] = loss(anchors[list(chosen)].mean(axis=0), h)
    ranks = {branch: [loss(x, h) for x in line] for branch, line in zip(branches, theta, strict=True)}
    return SoupLosses(soups=soups, ranks=ranks)


def simulate(rng, *, n=4, k=3, inter=0.3, intra=0.5, rho=0.0, common=0.0, shifts=None, bias=0.2) -> np.ndarray:
    """theta_nj = bias + common shift + u_n + h_j + eps_nj, all isotropic; eps of one branch correlated by rho."""
    draw = rng.standard_normal
    residual = np.sqrt(rho) * draw((n, 1, D)) + np.sqrt(1 - rho) * draw((n, k, D))
    theta = bias + np.sqrt(common) * draw(D) + np.sqrt(inter) * draw((n, 1, D)) + np.sqrt(intra) * residual
    return theta if shifts is None else theta + np.asarray(shifts)[None, :, None]


def half_trace(variance: float, h: np.ndarray = FULL) -> float:
    return variance * float(np.trace(h)) / 2


def averaged(statistic, *, trials=3000, **model) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of a statistic over simulated studies."""
    rng = np.random.default_rng(0)
    found = np.array(
        [statistic(losses_of(simulate(rng, **model), counts=(1, model.get("k", 3)))) for _ in range(trials)]
    )
    return found.mean(axis=0), found.std(axis=0) / np.sqrt(trials)


@pytest.mark.parametrize("h", [FULL, SINGULAR])
def test_the_gap_is_the_curvature_weighted_variance_for_every_realisation(h):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((6, D)), rng.dirichlet(np.ones(6))
    mean = w @ x
    exact = 0.5 * sum(wi * (xi - mean) @ h @ (xi - mean) for wi, xi in zip(w, x, strict=True))
    assert member_gap([loss(xi, h) for xi in x], merged=loss(mean, h), weights=w) == pytest.approx(exact)


@pytest.mark.parametrize("h", [FULL, SINGULAR])
def test_over_all_subsets_the_law_in_1_over_n_is_exact_not_only_expected(h):
    theta = simulate(np.random.default_rng(3), n=5, k=2)
    fit = fit_branches(losses_of(theta, h=h), k=2)
    assert [fit.loss(n) for n in range(1, 6)] == pytest.approx([fit.measured[n] for n in range(1, 6)])
    assert fit.subsets == 31
    assert fit.worth_of_branch(2) == pytest.approx(fit.loss(2) - fit.loss(3))


def test_missing_subsets_do_not_confuse_a_bad_branch_with_a_small_n():
    """Only the soup of the two good branches was scored: its low loss is theirs, not the merit of N = 2."""
    theta = np.array([[np.full(D, 0.1)], [np.full(D, 0.1)], [np.full(D, 5.0)]])
    everything = losses_of(theta)
    scored = [frozenset([name]) for name in names(3)] + [frozenset(names(2))]
    fit = fit_branches(SoupLosses(soups={(s, 1): everything.soups[s, 1] for s in scored}), k=1)
    assert fit.measured[1] - fit.measured[2] > 10
    assert fit.spread == pytest.approx(0)


def test_variances_and_limit_are_unbiased():
    def statistic(losses: SoupLosses):
        found = components(losses, k=3)
        return found.v_intra, found.v_inter, found.limit, found.rank_spread

    mean, error = averaged(statistic, inter=0.3, intra=0.5)
    truth = (half_trace(0.5), half_trace(0.3), loss(np.full(D, 0.2)), 0.0)
    assert np.all(np.abs(mean - truth) < 4 * error), (mean, truth, error)


def test_two_branches_and_two_checkpoints_are_enough_to_be_unbiased():
    def statistic(losses: SoupLosses):
        found = components(losses, k=2)
        return found.v_intra, found.v_inter

    mean, error = averaged(statistic, n=2, k=2)
    assert np.all(np.abs(mean - (half_trace(0.5), half_trace(0.3))) < 4 * error)


def test_what_the_residuals_of_a_branch_share_counts_as_persistent():
    mean, error = averaged(lambda losses: (components(losses, k=3).v_intra, components(losses, k=3).v_inter), rho=0.4)
    truth = (half_trace(0.5 * 0.6), half_trace(0.3 + 0.5 * 0.4))
    assert np.all(np.abs(mean - truth) < 4 * error)


def test_correlated_branches_leave_a_floor_in_the_limit():
    mean, error = averaged(lambda losses: ((fit := fit_branches(losses, k=3)).spread, fit.limit), common=0.4)
    truth = (half_trace(0.3 + 0.5 / 3), loss(np.full(D, 0.2)) + half_trace(0.4))
    assert np.all(np.abs(mean - truth) < 4 * error)


def test_different_rank_means_show_up_as_rank_spread():
    shifts = [0.0, 0.5, 1.0]
    mean, error = averaged(lambda losses: components(losses, k=3).rank_spread, shifts=shifts)
    truth = 0.5 * np.var(shifts) * np.trace(FULL)
    assert abs(mean - truth) < 4 * error


def test_branches_that_cancel_each_other_have_a_limit_below_their_mean():
    theta = np.array([[np.ones(D)], [-np.ones(D)]])
    fit = fit_branches(losses_of(theta), k=1)
    assert fit.loss(1) == pytest.approx(loss(np.ones(D)))
    assert fit.loss(2) == pytest.approx(FLOOR)
    assert fit.limit < FLOOR  # an unbiased estimate of a limit from two anchors may lie below the optimum


def test_identical_branches_have_no_spread_and_one_more_is_worth_nothing():
    fit = fit_branches(losses_of(np.ones((3, 2, D))), k=2)
    assert fit.spread == pytest.approx(0)
    assert fit.worth_of_branch(3) == pytest.approx(0)
    assert fit.limit == pytest.approx(loss(np.ones(D)))


def test_bias_changes_are_those_of_the_shifted_means():
    shifts = [0.0, 0.3, 0.6]
    rng = np.random.default_rng(7)
    theta = np.array([0.2 + np.array(shifts)[:, None] * np.ones(D)] * 2) + 0 * rng.standard_normal(D)
    fits = {k: fit_branches(losses_of(theta), k=k) for k in (1, 2, 3)}
    exact = {k: loss(np.full(D, 0.2 + np.mean(shifts[:k]))) - loss(np.full(D, 0.2)) for k in (1, 2, 3)}
    assert bias_changes(fits) == pytest.approx(exact)


def test_what_cannot_be_estimated_is_said():
    one = losses_of(simulate(np.random.default_rng(8), n=1))
    with pytest.raises(TheoryError, match="1 branch with an anchor at K=2"):
        fit_branches(one, k=2)
    two = losses_of(simulate(np.random.default_rng(9), n=2))
    alone = SoupLosses(soups={key: value for key, value in two.soups.items() if len(key[0]) == 1}, ranks=two.ranks)
    with pytest.raises(TheoryError, match="no soup of two or more"):
        fit_branches(alone, k=2)
    with pytest.raises(TheoryError, match="K >= 2"):
        components(two, k=1)
    with pytest.raises(TheoryError, match="'EXP1' has losses of 0 ranked"):
        components(SoupLosses(soups=two.soups), k=2)


def test_leaving_branches_out_keeps_only_their_soups():
    losses = losses_of(simulate(np.random.default_rng(10), n=3))
    left = losses.only(["EXP1", "EXP3"])
    assert left.branches(1) == ("EXP1", "EXP3")
    assert set(left.ranks) == {"EXP1", "EXP3"}
    assert left.counts() == (1, 2, 3)
    assert len(left.soups) == 9
