import dataclasses
import shutil

import pytest

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.report.page import page_parts
from trajsoup.report.sections.answer import HEADLINES, read_answer, why_no_answer
from trajsoup.report.study import open_study
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.comparisons import ComparisonsRecord, Evidence
from trajsoup.study.records.files import Records
from trajsoup.study.records.rows import RowsRecord


def test_the_first_line_is_the_answer_and_zero_lies_where_it_should(records):
    answer = read_answer(records)
    first, loss = answer.headline, records.require(AnswerRecord).loss
    assert first.compared == loss
    assert first.evidence is Evidence.STRONG
    assert first.verdict == "yes"
    assert first.low < first.middle < first.high < first.zero  # better is to the left
    share = (first.high - first.low) / (first.zero - first.middle)
    assert share == pytest.approx((loss.high - loss.low) / -loss.difference, rel=0.02)


def test_the_answers_question_comes_first_and_the_other_headlines_follow(records):
    names = [line.compared.name for line in read_answer(records).lines]
    assert names[0] == records.require(AnswerRecord).loss.name
    assert {"soup-limited", "soup-extended"} <= set(names) <= {name for name, _, _ in HEADLINES} - {"merge"}
    assert len(names) == len(set(names))


def test_the_exact_merge_names_every_ingredient_of_the_soup_that_validates_best(records):
    answer, rows = read_answer(records), {row.name: row for row in records.require(RowsRecord).rows}
    limited, extended = rows["trajectory-soup/limited"], rows["trajectory-soup/extended"]
    assert extended.validation_loss < limited.validation_loss
    assert (answer.headline.model, answer.shipped) == (limited, extended)
    for key, weight in extended.weights.items():
        assert f"{key}={weight!r}" in answer.command
    assert answer.command.endswith("--output soup-again")  # soup is there
    alone = dataclasses.replace(extended, weights=dict.fromkeys(list(extended.weights)[:1], 1.0))
    assert dataclasses.replace(answer, shipped=alone).command is None


def test_two_models_that_are_one_are_the_same_and_not_uncertain(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "study")
    records = Records(copy, held=True)
    answer, compared = records.require(AnswerRecord), records.require(ComparisonsRecord)
    same = dataclasses.replace(answer.loss, difference=0.0, low=0.0, high=0.0, p_holm=1.0)
    records.write(dataclasses.replace(answer, loss=same))
    records.write(dataclasses.replace(compared, comparisons=()))
    (line,) = read_answer(open_study(copy)).lines
    assert line.verdict == "the same"


def test_a_difference_without_an_interval_is_of_too_few_documents_and_not_noise(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "study")
    records = Records(copy, held=True)
    answer, compared = records.require(AnswerRecord), records.require(ComparisonsRecord)
    few = dataclasses.replace(answer.loss, low=None, high=None, p=None, p_holm=None)
    records.write(dataclasses.replace(answer, loss=few))
    records.write(dataclasses.replace(compared, comparisons=(few,)))
    (line,) = read_answer(open_study(copy)).lines
    assert (line.evidence, line.verdict) == (Evidence.TOO_FEW, "too few documents to say")
    body = page_parts(open_study(copy)).body
    assert "of too few documents to say more" in body
    assert "cannot be told apart" not in body


def test_a_study_without_an_answer_has_no_lines(tmp_path):
    assert read_answer(open_study(write_study(tmp_path, dataclasses.replace(SMALL, until="comparisons")))) is None


def test_a_study_without_a_soup_says_why_where_the_answer_would_stand(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "study")
    records = Records(copy, held=True)
    answer = dataclasses.replace(records.require(AnswerRecord), loss=None, why_no_soup="EXP2 ends early")
    records.write(answer)
    assert why_no_answer(open_study(copy)) == "EXP2 ends early"
    head, _, _ = page_parts(open_study(copy)).body.partition("<h2>")
    assert "This study has no soup to compare</h1>" in head
    assert "The reason: EXP2 ends early." in head
