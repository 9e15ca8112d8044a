"""Records are asked for by type, read as typed data or refused in one line, and written only by who holds the study."""

import contextlib
import math
from pathlib import Path

import pytest

from trajsoup.core.splits import Split
from trajsoup.errors import StudyError
from trajsoup.store.lock import holding
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.evaluations import Evaluation, EvaluationsRecord
from trajsoup.study.records.files import LOCK, Records, writing
from trajsoup.study.records.sweeps import SweepRecord


def evaluations(loss):
    scored = Evaluation(
        row="raw-final",
        split=Split.TEST,
        loss=Estimate(value=None, count=3),
        overall_average=None,
        categories={"sums": loss},
        sources={"web": 2.0},
    )
    return EvaluationsRecord(inputs={"rows": "0"}, evaluations=(scored,))


def test_a_record_comes_back_as_its_type_and_what_diverged_as_none(tmp_path):
    with writing(tmp_path) as records:
        records.write(evaluations(math.nan))
    found = Records(tmp_path).require(EvaluationsRecord)
    assert type(found) is EvaluationsRecord
    assert found.evaluations[0].categories == {"sums": None}
    assert found.evaluations[0].split is Split.TEST


def test_who_does_not_hold_the_study_cannot_write(tmp_path):
    with pytest.raises(AssertionError, match="holds the study"):
        Records(tmp_path).write(evaluations(1.0))


def test_a_study_is_held_by_one(tmp_path):
    with writing(tmp_path), pytest.raises(StudyError, match="is being run by process"), writing(tmp_path):
        pass
    with (
        contextlib.chdir(tmp_path),
        writing(Path()),
        pytest.raises(StudyError, match=f"{tmp_path} is"),
        writing(Path()),
    ):
        pass  # a study of this folder is not called "."
    with holding(tmp_path / LOCK), pytest.raises(StudyError, match="wait for it, or stop it first"), writing(tmp_path):
        pass


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": "trajsoup/record/1"}', '{"format": 1, "inputs": {}}', '{"format": "x", "inputs": {}}',
     '{"format": "trajsoup/record/1", "inputs": {}, "evaluations": [{"row": 3}]}', "\xff", "[" * 100_000],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_record_is_refused_in_one_line_with_the_cure(tmp_path, text):
    path = Records(tmp_path).path(EvaluationsRecord)
    path.parent.mkdir()
    path.write_text(text, encoding="latin-1")
    with pytest.raises(StudyError, match=r"evaluations\.json .*remove it, and it is made again") as refused:
        Records(tmp_path).read(EvaluationsRecord)
    assert "\n" not in str(refused.value)


def test_records_of_a_kind_with_several_have_names(tmp_path):
    sweep = SweepRecord(inputs={}, name="mine", kind="scaling", title="t", paper="p", x_label="x", points=())
    with writing(tmp_path) as records:
        records.write(sweep)
    assert Records(tmp_path).every(SweepRecord) == {"mine": sweep}
    assert Records(tmp_path).path(SweepRecord, "mine") == tmp_path / "records" / "sweeps" / "mine.json"


def test_a_sweep_of_records_that_have_changed_since_is_not_shown(tmp_path):
    with writing(tmp_path) as records:
        records.write(evaluations(1.0))
        digest = records.digest(EvaluationsRecord)
        swept = SweepRecord(
            inputs={"evaluations": digest, "entries": "0"},
            name="s",
            kind="k",
            title="",
            paper="",
            x_label="",
            points=(),
        )
        records.write(swept)
        assert list(records.every(SweepRecord)) == ["s"]
        records.write(evaluations(2.0))
        assert records.every(SweepRecord) == {}
