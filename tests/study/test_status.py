"""What `status` says of a study that is at work, from its records and its lock alone."""

import json
import os

from tests.study.train.test_plan import study_of
from trajsoup.store.lock import holding, owner_of
from trajsoup.study.records.files import LOCK
from trajsoup.study.status import stages_of


def test_the_first_stage_without_a_record_is_running_while_somebody_holds_the_study(tmp_path):
    study = study_of(tmp_path)
    assert {s.state for s in stages_of(study)} == {"waiting"}
    with holding(study.output / LOCK):
        first, *later = (s.state for s in stages_of(study))
    assert (first, set(later)) == ("running", {"waiting"})
    assert {s.state for s in stages_of(study)} == {"waiting"}


def test_a_study_whose_process_was_killed_is_not_at_work(tmp_path):
    study = study_of(tmp_path)
    with holding(study.output / LOCK):
        left = (study.output / LOCK).read_bytes()
        assert owner_of(study.output / LOCK).pid == os.getpid()
    (study.output / LOCK).write_text(
        json.dumps({**json.loads(left), "started": "1"})
    )  # an earlier process of this number
    assert {s.state for s in stages_of(study)} == {"waiting"}
