"""In a quadratic bowl the prediction from one and two branches is exact for three and four."""

import itertools

import numpy as np
import pytest

from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.soup import soup_row
from trajsoup.core.splits import Split
from trajsoup.study.evaluation_section import EvaluationPlan, SweepKind
from trajsoup.study.field import Field
from trajsoup.study.prediction import predict
from trajsoup.study.records import ChosenOn, Signal, SweepPoint, SweepRecord

BRANCHES = ("EXP1", "EXP2", "EXP3", "EXP4")
KS = (1, 2, 4)


@pytest.fixture(scope="module")
def bowl():
    """Checkpoints as points around the minimum of 1/2 |x|^2 + 2, and the loss of any row of them."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(4, 20)) * 0.2
    points = {
        f"{b}/{i}": c + rng.normal(size=20) * 0.3 for b, c in zip(BRANCHES, centres, strict=True) for i in range(6)
    }

    def loss(weights):
        return 2 + 0.5 * float(np.sum(sum(w * points[key] for key, w in weights.items()) ** 2))

    pools = tuple(
        Pool(
            branch=b,
            candidates=tuple(
                Candidate(key=f"{b}/{i}", branch=b, tokens=i + 1, val_loss=loss({f"{b}/{i}": 1.0})) for i in range(6)
            ),
        )
        for b in BRANCHES
    )
    return Field(pools=pools, admitted=BRANCHES, baseline="EXP1", evaluation=EvaluationPlan(ks=KS)), loss


def grid(field, loss, *, branches=BRANCHES):
    chosen_on = ChosenOn(split=Split.VALIDATION, signal=Signal.LOSS, free=(), among=1, score=None)
    points = []
    for n, k in itertools.product(range(1, len(branches) + 1), KS):
        for subset in itertools.combinations(branches, n):
            row = soup_row(field.chosen(subset), k=k)
            points.append(
                SweepPoint(
                    row=f"{'+'.join(subset)}/{k}", series=f"N={n}", x=n * k, strategy="trajectory-soup", setting=None,
                    weights=row.weights, k=k, n_branches=n, merge_size=n * k, horizon=6, budget_tokens=6 * n,
                    branches=subset, chosen_on=chosen_on, validation_loss=loss(row.weights), validation_accuracy=None,
                    test_loss=None, test_accuracy=None,
                )
            )  # fmt: skip
    return SweepRecord(
        inputs={}, name="scaling", kind=SweepKind.SCALING, title="", paper="", x_label="", points=tuple(points)
    )


def test_cells_and_soups_of_many_branches_are_predicted_exactly(bowl):
    field, loss = bowl
    found = predict(grid(field, loss), field, inputs={})
    assert {(c.n_branches, c.k) for c in found.cells} == set(itertools.product(range(1, 5), KS))
    for cell in found.cells:
        assert cell.measured == pytest.approx(cell.predicted, abs=1e-9)
        assert cell.fitted == (cell.n_branches <= 2)
    assert len(found.soups) == 5 * len(KS)
    assert found.soups_error.worst < 1e-9
    assert found.cells_error.soups == 2 * len(KS)


def test_the_best_count_is_told_as_predicted_and_as_measured(bowl):
    field, loss = bowl
    found = predict(grid(field, loss), field, inputs={})
    assert [c.n_branches for c in found.counts] == [1, 2, 3, 4]
    assert all(c.predicted == c.measured for c in found.counts)


def test_variances_stand_beside_each_k_and_one_checkpoint_has_none_within(bowl):
    field, loss = bowl
    fits = {fit.k: fit for fit in predict(grid(field, loss), field, inputs={}).fits}
    assert fits[1].v_intra is None
    assert fits[4].v_intra > 0
    assert fits[1].k_eff == pytest.approx(1)
    assert fits[1].bias_change == 0


def test_one_branch_leaves_nothing_to_predict_and_says_so(bowl):
    field, loss = bowl
    found = predict(grid(field, loss, branches=("EXP1",)), field, inputs={})
    assert found.fits == found.cells == ()
    assert found.cells_error is None
    assert "needs two" in found.notes[0]
