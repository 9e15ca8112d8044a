import dataclasses
import json

import pytest

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.errors import StudyError
from trajsoup.report.progress import branch_states, is_running, stage_states
from trajsoup.report.study import open_study
from trajsoup.study.stages import STAGES


def test_a_folder_without_records_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(StudyError, match=r"no records/.*trajsoup run"):
        open_study(tmp_path)


def test_a_running_study_shows_its_stages_and_branches(tmp_path):
    records = open_study(write_study(tmp_path, dataclasses.replace(SMALL, until="plan", done=0.5)))
    branches = branch_states(records)
    assert [b.status for b in branches] == ["running"] * 3
    assert [round(b.share, 2) for b in branches] == [0.5] * 3
    stages = stage_states(records, branches)
    assert [s.state for s in stages][:3] == ["done", "running", "waiting"]
    assert stages[1].detail == "50%"
    assert is_running(stages)


def test_the_stages_are_those_of_the_study_in_their_order(records):
    stages = stage_states(records, ())
    assert not is_running(stages)
    names = [stage.name for stage in STAGES]
    asked = [name for name in names if name not in ("connectivity", "sft", "neighbours", "retention")]
    assert [s.stage for s in stages] == asked


def test_a_line_that_is_being_written_is_passed_over(tmp_path):
    study = write_study(tmp_path, dataclasses.replace(SMALL, until="plan", done=0.5))
    path = study / "branches" / "EXP1" / "metrics.jsonl"
    before = branch_states(open_study(study))[0].losses
    with path.open("a") as file:
        file.write('{"tokens": 999999999999, "train_l')
    assert branch_states(open_study(study))[0].losses == before
    with path.open("a") as file:
        file.write('oss": 1.5}\n{"tokens": 999999999999999, "train_loss": NaN}\n')
    assert branch_states(open_study(study))[0].losses == (*before, (999999999999, 1.5))


def test_metrics_outside_the_study_are_not_read(tmp_path):
    study = write_study(tmp_path / "study", SMALL)
    secret = tmp_path / "metrics.jsonl"
    secret.write_text('{"tokens": 5, "train_loss": 1.0}\n')
    path = study / "records" / "train.json"
    record = json.loads(path.read_text())
    record["branches"][0]["metrics"] = "../metrics.jsonl"
    record["branches"][1]["metrics"] = str(secret)
    path.write_text(json.dumps(record))
    first, second, third = branch_states(open_study(study))
    assert first.losses == second.losses == ()
    assert third.losses
