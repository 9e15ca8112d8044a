import dataclasses

import pytest

from trajsoup.report.contents import Evidence, SeedLine
from trajsoup.report.glance import lines


def test_the_first_line_is_the_answer_and_zero_lies_where_it_should(contents):
    first = lines(contents)[0]
    assert first.difference == contents.answer.loss
    assert first.verdict == "yes"
    assert first.low < first.middle < first.high < first.zero  # better is to the left
    share = (first.high - first.low) / (first.zero - first.middle)
    loss = contents.answer.loss
    assert share == pytest.approx((loss.high - loss.low) / -loss.value, rel=0.02)


def test_every_line_asks_about_the_same_single_merge(contents):
    for line in lines(contents):
        assert contents.answer.reference in (line.difference.reference, line.difference.label)


def test_two_models_that_are_one_are_the_same_and_not_uncertain(contents):
    same = dataclasses.replace(contents.answer.loss, value=0.0, low=0.0, high=0.0, within_noise=True)
    answer = dataclasses.replace(contents.answer, loss=same)
    (line,) = lines(dataclasses.replace(contents, answer=answer, differences=()))
    assert line.verdict == "the same"


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(-0.03, -0.01, Evidence.STRONG), (-0.03, 0.01, Evidence.WITHIN_NOISE)]
)
def test_an_answer_is_certain_only_if_documents_and_seeds_agree(contents, low, high, expected):
    loss = contents.answer.loss
    seeds = SeedLine(
        name=loss.name, label="x", rank_by=loss.rank_by, values={"0": -0.02, "1": 0.001}, mean=-0.02, low=low, high=high
    )
    first = lines(dataclasses.replace(contents, seeds=(seeds,)))[0]
    assert first.evidence is expected
    assert len(first.seeds) == 2
    assert first.seeds[1] > first.zero  # that seed was worse


def test_a_study_without_an_answer_has_no_lines(contents):
    assert lines(dataclasses.replace(contents, answer=None)) == ()
