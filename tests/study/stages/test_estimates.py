"""An interval over a handful of documents covers too seldom to be printed."""

import numpy as np
import pytest

from trajsoup.core.scores import DocumentLosses, TaskResult, TestScores
from trajsoup.study.stages.estimates import FEWEST, Question, answer_estimate, compared, loss_estimate


def scores(targets, *, shift=0.0):
    targets = np.array(targets)
    nll = targets * (2.0 + shift) + np.sin(np.arange(len(targets)))
    return TestScores(losses=DocumentLosses(nll=nll, targets=targets))


@pytest.mark.parametrize(
    ("targets", "has_interval"),
    [([100] * (FEWEST - 1), False), ([100] * FEWEST, True), ([100] * 60 + [20_000], False)],
)
def test_below_thirty_effective_documents_there_is_a_difference_and_no_interval(targets, has_interval):
    mine, theirs = scores(targets, shift=0.1), scores(targets)
    asked = Question(name="a", model="m", reference="r", question="?", matched="budget")
    (found,) = compared(asked, mine, theirs, label="", resamples=200)
    assert found.difference == pytest.approx(0.1)
    for one in (found, loss_estimate(mine, resamples=200)):
        assert ((one.low is not None), (one.high is not None)) == (has_interval, has_interval)
    assert (found.p is not None) == has_interval


def test_the_loss_of_right_answers_is_a_mean_over_configurations_not_items():
    few, many = (
        TaskResult(name=name, category="c", correct=np.zeros(n), answer_loss=np.full(n, loss))
        for name, n, loss in (("a", 40, 1.0), ("b", 400, 3.0))
    )
    found = answer_estimate(TestScores(tasks=(few, many)), resamples=50)
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)
    unknown = TaskResult(name="c", category="c", correct=np.zeros(3))
    assert answer_estimate(TestScores(tasks=(few, unknown)), resamples=50) is None
