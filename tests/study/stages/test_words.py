from dataclasses import replace

import pytest

from trajsoup.core.screening import Verdict
from trajsoup.core.signal import Signal
from trajsoup.report.cells import difference
from trajsoup.study.records.results import (
    ChosenOn,
    ComparisonRecord,
    Estimate,
    Evaluation,
    EvaluationsRecord,
    RowRecord,
    ScoredCheckpoint,
    ScreenRecord,
    Split,
    ValidationRecord,
)
from trajsoup.study.stages.words import against, sentences

BETTER = ComparisonRecord(
    name="soup-limited",
    question="?",
    model="soup",
    reference="fixed",
    signal=Signal.LOSS,
    split=Split.TEST,
    difference=-0.02,
    low=-0.03,
    high=-0.01,
    probability_of_improvement=0.9987,
    within_noise=False,
    count=10,
    matched="budget",
)
NOISE = replace(BETTER, low=-0.05, high=0.01, probability_of_improvement=0.81, within_noise=True)


def row(name, *, validation, free):
    chosen = ChosenOn(split=Split.VALIDATION, signal=Signal.LOSS, free=free, among=1 + 4 * bool(free), score=None)
    return RowRecord(
        name=name,
        label=name.title(),
        strategy="-",
        setting=None,
        select="top-k",
        coefficients="equal",
        k=None,
        horizon=None,
        budget_tokens=1,
        branches=("A",),
        weights={"c": 1.0},
        chosen_on=chosen,
        validation_loss=validation,
    )


def said(*, validation, test, accuracies, verdicts=()):
    rows = {
        "soup": row("soup", validation=validation[0], free=("k",)),
        "fixed": row("fixed", validation=validation[1], free=()),
    }
    scored = [
        ScoredCheckpoint(key=str(i), branch="A", tokens=i, loss=float(i), accuracy=accuracy, probe_loss=None)
        for i, accuracy in enumerate(accuracies)
    ]
    evaluations = tuple(
        Evaluation(row=name, split=Split.TEST, loss=Estimate(value=value, count=1), overall_average=None)
        for name, value in zip(rows, test, strict=True)
    )
    found = sentences(
        [BETTER],
        rows=rows,
        evaluations=EvaluationsRecord(inputs={}, evaluations=evaluations),
        screen=ScreenRecord(inputs={}, baseline="A", tolerance=0.01, measured_on="-", verdicts=verdicts),
        validation=ValidationRecord(
            inputs={},
            split=Split.VALIDATION,
            documents=1,
            fork_point_loss=None,
            fork_point_accuracy=None,
            checkpoints=tuple(scored),
        ),
    )
    return " ".join(found)


def test_the_optimism_of_selection_is_said_beside_that_of_a_model_that_nothing_chose():
    text = said(validation=(2.0, 2.2), test=(2.15, 2.25), accuracies=())
    assert "Soup, the winner on validation, has 2.0000 there and 2.1500 on test, -0.1500" in text
    assert "against -0.0500 of Fixed, which nothing chose: choosing flatters by 0.1000 nats" in text
    assert "flatters by 0.0000" in said(validation=(2.0, 2.2), test=(2.0, 2.25), accuracies=())


@pytest.mark.parametrize(("accuracies", "rho"), [((0.9, 0.8, 0.7, 0.1), "+1.00"), ((0.1, 0.2, 0.3, 0.4), "-1.00")])
def test_how_far_the_two_rankings_agree_is_said(accuracies, rho):
    text = said(validation=(2.0, 2.2), test=(2.1, 2.2), accuracies=accuracies)
    assert f"Ranking the 4 checkpoints by validation loss and by accuracy agrees to Spearman's {rho}" in text
    assert "Spearman" not in said(validation=(2.0, 2.2), test=(2.1, 2.2), accuracies=(None, None, None))


def test_every_difference_has_its_interval_and_probability_and_noise_is_called_noise():
    assert against(BETTER).startswith("beats the best single-trajectory merge (-0.0200 nats, 95 % interval -0.0300 to")
    assert "better with probability 0.999" in against(BETTER)
    assert "cannot be told from" in against(NOISE)
    assert difference(BETTER).text == "−0.0200 [−0.0300, −0.0100] p=0.999"
    assert difference(NOISE).text == "−0.0200 [−0.0500, +0.0100] p=0.810 ~"
    points = replace(BETTER, signal=Signal.ACCURACY, difference=0.02, low=0.01, high=0.03)
    assert difference(points).text == "+2.00 [+1.00, +3.00] p=0.999"


def test_a_branch_that_was_forced_in_did_not_pass_the_screen():
    verdict = Verdict(
        branch="A",
        admitted=True,
        tokens=1,
        loss=2.0,
        baseline_loss=1.0,
        loss_gap=1.0,
        suspiciously_low=False,
        gaps=(),
        forced=True,
    )
    text = said(validation=(2.0, 2.2), test=(2.1, 2.2), accuracies=(), verdicts=(verdict,))
    assert text.startswith("0 of 1 branches passed the screen; A did not, but was forced in.")
