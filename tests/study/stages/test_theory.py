"""What a study predicts, on a bowl whose losses are exactly quadratic and whose documents each have their own minimum."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.study.choosing.field import Field
from trajsoup.study.stages.theory import predict, soups_at

KS = (1, 2, 3)
DOCUMENTS, SIZE = 40, 6


def study(branches: int, *, cubic: float = 0.0, still: bool = False):
    """Branches of six checkpoints that hover around means of their own."""
    rng = np.random.default_rng(4)
    minima = rng.standard_normal((DOCUMENTS, SIZE)) * 0.3
    points: dict[str, np.ndarray] = {}
    pools = []
    for n in range(branches):
        centre = rng.standard_normal(SIZE) * (0 if still else 0.5)
        candidates = []
        for i in range(1, 7):
            key = f"EXP{n + 1}/checkpoint-{i}"
            points[key] = centre + rng.standard_normal(SIZE) * (0 if still else 0.4)
            loss = float(np.mean(losses_of(points[key], minima, cubic)))
            candidates.append(Candidate(key=key, branch=f"EXP{n + 1}", tokens=100 * i, val_loss=loss))
        pools.append(Pool(branch=f"EXP{n + 1}", candidates=tuple(candidates)))
    names = tuple(pool.branch for pool in pools)
    field = Field(pools=tuple(pools), admitted=names, baseline="EXP1", ks=KS, n_horizons=2)
    return field, points, minima


def losses_of(x: np.ndarray, minima: np.ndarray, cubic: float) -> np.ndarray:
    away = x - minima
    return 2 + np.sum(away**2, axis=1) / 2 + cubic * np.sum(np.abs(away) ** 3, axis=1)


def predicted(branches: int, *, cubic: float = 0.0, still: bool = False):
    field, points, minima = study(branches, cubic=cubic, still=still)
    at = {h: soups_at(field, h) for h in field.horizons}
    rows = {row.name: row for _, found in at.values() for row in found}
    merged = {name: sum(w * points[key] for key, w in row.weights.items()) for name, row in rows.items()}
    means = {name: float(np.mean(losses_of(x, minima, cubic))) for name, x in merged.items()}
    soups = {h: found for h, (found, _) in at.items()}
    return predict(soups[600], horizon=600, earlier=soups, means=means, field=field, inputs={}), means


def test_on_a_quadratic_held_out_soups_are_predicted_exactly_and_the_words_say_so():
    record, _ = predicted(4)
    larger = next(held for held in record.held_out if held.name == "larger soups")
    assert larger.soups == (4 + 1) * len(KS)
    assert larger.share_of_gain == pytest.approx(0, abs=1e-9)
    assert larger.gain > 0.01
    assert any("the quadratic model holds well" in sentence for sentence in record.held_out_words)


def test_on_a_quadratic_cells_and_soups_of_many_branches_are_predicted_exactly_from_one_and_two():
    record, means = predicted(4)
    assert {(c.n_branches, c.k) for c in record.cells} == set(itertools.product(range(1, 5), KS))
    for cell in record.cells:
        assert cell.measured == pytest.approx(cell.predicted, abs=1e-9)
        assert cell.fitted == (cell.n_branches <= 2)
        assert cell.subsets == math.comb(4, cell.n_branches)
    assert record.cells_error.soups == 2 * len(KS)
    assert record.cells_error.worst < 1e-9
    assert len(record.soups) == 5 * len(KS)
    for soup in record.soups:
        assert soup.measured == means[f"{'+'.join(soup.branches)}/K={soup.k}@600"]
        assert soup.predicted == pytest.approx(soup.measured, abs=1e-9)


def test_cells_of_three_branches_are_predicted_by_a_fit_that_has_not_seen_them():
    record, _ = predicted(4, cubic=0.5)
    for k in KS:
        losses = {c.n_branches: c for c in record.cells if c.k == k}
        spread = 2 * (losses[1].measured - losses[2].measured)
        assert losses[3].predicted == pytest.approx(losses[1].measured - spread * (1 - 1 / 3))
        assert losses[3].predicted != pytest.approx(losses[3].measured, abs=1e-6)
    assert record.cells_error.worst > 1e-6


def test_the_best_count_is_told_as_predicted_and_as_measured():
    record, _ = predicted(4)
    assert [best.n_branches for best in record.best if best.measured] == [1, 2, 3, 4]
    assert all(best.k == best.from_pairs == best.measured for best in record.best if best.measured)


def test_the_bias_does_not_change_at_one_checkpoint():
    assert predicted(4)[0].counts[0].bias_change == 0


def test_a_loss_that_is_not_quadratic_shows_in_the_error():
    exact, _ = predicted(4)
    bent, _ = predicted(4, cubic=0.5)
    assert bent.held_out[0].root_mean_square > 100 * exact.held_out[0].root_mean_square
    assert bent.held_out[0].share_of_gain < 1


def test_predictions_at_n_that_were_measured_are_the_means_over_subsets():
    record, means = predicted(4)
    for best in record.best:
        if best.measured:
            same = [
                m
                for name, m in means.items()
                if name.endswith(f"/K={best.k}@600") and name.count("+") == best.n_branches - 1
            ]
            assert best.loss == pytest.approx(np.mean(same))
    assert [best.n_branches for best in record.best] == [1, 2, 3, 4, 5, 6]
    assert not record.best[-1].measured


def test_intervals_hold_their_estimates_and_worths_have_the_sign_of_the_spread():
    record, _ = predicted(4)
    for count in record.counts:
        assert count.spread.low <= count.spread.value <= count.spread.high
        assert count.spread.count == 4  # branches
        assert (count.v_intra is None) == (count.v_inter is None) == (count.k == 1)  # nothing within one checkpoint
        if count.k > 1:
            assert count.v_intra.low <= count.v_intra.value <= count.v_intra.high
            assert count.v_inter.low <= count.v_inter.value <= count.v_inter.high
    assert record.variances.k == max(KS)
    assert record.variances.v_intra.value > 0
    assert record.worth_of_branch.value > 0
    assert record.worth_of_branch.low <= record.worth_of_branch.value <= record.worth_of_branch.high
    assert set(record.budget) <= {"1", "2", "3", "4"}


def test_what_one_more_branch_is_worth_is_said_with_its_interval_over_branches():
    record, _ = predicted(4)
    worth = record.worth_of_branch
    said = f"take {worth.value:.2g} ({worth.low:.2g} to {worth.high:.2g} over branches) nats off"
    assert any(said in sentence for sentence in record.words)


def test_two_branches_are_fitted_but_nothing_can_be_held_out():
    record, _ = predicted(2)
    assert record.counts
    assert record.held_out == ()
    assert record.counts[0].spread.low is record.worth_of_branch.low is None
    assert "not tested" in record.words[0]


def test_one_branch_is_answered_by_a_word():
    record, _ = predicted(1)
    assert record.counts == record.cells == record.soups == record.best == record.held_out == ()
    assert record.cells_error is record.worth_of_branch is None
    assert "1 admitted branch: how branches vary cannot be estimated" in record.words[0]


def test_identical_checkpoints_have_no_spread_and_promise_nothing():
    record, _ = predicted(3, still=True)
    assert all(count.spread.value == pytest.approx(0, abs=1e-12) for count in record.counts)
    assert record.worth_of_branch.value == pytest.approx(0, abs=1e-12)
