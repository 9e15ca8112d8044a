from dataclasses import replace

import pytest

from trajsoup.core.completion import ProtocolFields
from trajsoup.core.screening import Verdict
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.core.statistics import Optimism
from trajsoup.report.cells import difference
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.evaluations import Evaluation, EvaluationsRecord
from trajsoup.study.records.rows import ChosenOn, RowRecord
from trajsoup.study.records.screen import ScreenRecord
from trajsoup.study.records.validation import ScoredCheckpoint, ValidationRecord
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
    p=0.002,
    resamples_better=0.9987,
    primary=True,
    p_holm=0.016,
    count=10,
    matched="budget",
)
NOISE = replace(BETTER, low=-0.05, high=0.01, p_holm=0.8)


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


def protocol(**effective):
    return ProtocolFields(
        k_grid=(1,), horizons=(1,), rank_by="loss", tie_rule="-", held_out="-", scored_tokens={}, scored_documents={},
        effective_documents=effective, largest_share={}, masking="-", normalisation="-", overall_average=None,
    )  # fmt: skip


def said(*, validation, test, accuracies, verdicts=(), optimism=None, protocol=None):
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
        evaluations=EvaluationsRecord(inputs={}, evaluations=evaluations, protocol=protocol),
        screen=ScreenRecord(inputs={}, baseline="A", tolerance=0.01, measured_on="-", verdicts=verdicts),
        validation=ValidationRecord(
            inputs={},
            split=Split.VALIDATION,
            documents=1,
            fork_point_loss=None,
            fork_point_accuracy=None,
            checkpoints=tuple(scored),
        ),
        optimism=optimism,
    )
    return " ".join(found)


def test_the_optimism_of_selection_is_said_beside_that_of_a_model_that_nothing_chose():
    found = Optimism(validation=2.0, test=2.15, reference_gap=-0.05, flattery=0.1, low=0.02, high=0.18)
    text = said(validation=(2.0, 2.2), test=(2.15, 2.25), accuracies=(), optimism=found)
    assert "Soup, the winner on validation, has 2.0000 there and 2.1500 on test, -0.1500" in text
    assert "of Fixed, which nothing chose: choosing flatters by +0.1000 nats (95 % interval +0.0200 to +0.1800)" in text
    less = replace(found, flattery=-0.03, low=-0.1, high=0.04)
    assert "flatters by -0.0300 nats" in said(validation=(2.0, 2.2), test=(2.0, 2.25), accuracies=(), optimism=less)


def test_the_best_model_is_the_one_that_validation_prefers():
    text = said(validation=(2.0, 2.2), test=(2.3, 2.1), accuracies=())
    assert "Soup is best on validation; on test it has 2.3000 nats per token." in text


@pytest.mark.parametrize(("accuracies", "rho"), [((0.9, 0.8, 0.7, 0.1), "+1.00"), ((0.1, 0.2, 0.3, 0.4), "-1.00")])
def test_how_far_the_two_rankings_agree_is_said(accuracies, rho):
    text = said(validation=(2.0, 2.2), test=(2.1, 2.2), accuracies=accuracies)
    assert f"Ranking the 4 checkpoints by validation loss and by accuracy agrees to Spearman's {rho}" in text
    assert "Spearman" not in said(validation=(2.0, 2.2), test=(2.1, 2.2), accuracies=(None, None, None))


def test_every_difference_has_its_interval_and_only_registered_ones_a_verdict():
    assert against(BETTER).startswith("beats the best single-trajectory merge (-0.0200 nats, 95 % interval -0.0300 to")
    assert "over the 10 documents of one seed; p = 0.016 after Holm" in against(BETTER)
    assert "cannot be told from" in against(NOISE)
    assert against(replace(BETTER, primary=False, p_holm=None)).endswith("exploratory, no verdict")
    assert "loses to" in against(replace(BETTER, difference=0.02, low=0.01, high=0.03))
    assert difference(BETTER).text == "−0.0200 [−0.0300, −0.0100]"
    points = replace(BETTER, signal=Signal.ACCURACY, difference=0.02, low=0.01, high=0.03)
    assert difference(points).text == "+2.00 [+1.00, +3.00]"


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


def test_documents_that_are_too_few_to_choose_by_are_said_before_anything_is_chosen_by_them():
    few = {"validation": (2.0, 2.2), "test": (2.3, 2.1), "accuracies": ()}
    text = said(**few, protocol=protocol(validation=2.4, test=11.3))
    assert "The validation documents cannot choose: 2 of one size would say as much, and 30 are the least." in text
    assert "The test documents carry no interval: 11 of one size" in text
    assert "would say as much" not in said(**few, protocol=protocol(validation=30.0, test=400.0))
