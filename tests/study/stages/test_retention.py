"""Pruning at the end of a study: what goes, what stays, and that everything recorded still holds."""

import pytest

from tests.study.studies import write_study
from tests.study.tiny_study import TEXT, make_study, run_tiny, small_documents
from trajsoup.errors import StudyError
from trajsoup.merge.verify import verify_soup
from trajsoup.study.file.study import load_study, load_training_study
from trajsoup.study.records.retention import RetentionRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.run import run_study
from trajsoup.study.status import StageState, stages_of
from trajsoup.study.train.plan import plan_study

POLICY = "    retention: {top_k: 2, every_nth: 3}\n"


@pytest.fixture(scope="module")
def ran(tmp_path_factory, fork_point):
    return run_tiny(tmp_path_factory.mktemp("study") / "pruned", fork_point, more=POLICY)


def on_disk(ran):
    output = ran.setup.output
    return {str(path.relative_to(output)) for path in output.glob("branches/*/checkpoint-*")}


def test_what_is_on_disk_is_what_the_record_says_was_kept(ran):
    record = ran.records.require(RetentionRecord)
    assert record.pruned
    assert on_disk(ran) == set(record.kept)
    trained = {c.key for branch in ran.records.require(TrainRecord).branches for c in branch.checkpoints}
    assert trained == {*record.kept, *record.pruned}


def test_status_lists_it(ran):
    assert stages_of(ran.setup)[-1] == StageState(seed=0, stage="retention", state="done")


def test_the_best_the_last_and_every_third_of_each_branch_stay(ran):
    kept = set(ran.records.require(RetentionRecord).kept)
    scored = ran.records.require(ValidationRecord).checkpoints
    for branch in {c.branch for c in scored}:
        mine = sorted((c for c in scored if c.branch == branch), key=lambda c: c.tokens)
        best = sorted(mine, key=lambda c: c.loss)[:2]
        assert {c.key for c in (*best, mine[-1], mine[2], mine[5])} <= kept


def test_the_soup_verifies_and_every_chosen_row_can_be_made_again(ran):
    kept = set(ran.records.require(RetentionRecord).kept)
    assert verify_soup(ran.soup, full=True)
    for row in ran.records.require(RowsRecord).rows:
        if row.strategy != "full-soup":
            assert set(row.weights) <= kept, row.name


def test_a_pruned_study_is_finished_and_says_so_when_more_is_asked_of_it(ran):
    assert run_study(ran.setup, corpus=None, cache=ran.setup.output / "nowhere").made == ()
    path = ran.setup.path
    text = path.read_text()
    path.write_text(text.replace("validation_tokens: 4k", "validation_tokens: 1k"))
    try:
        with pytest.raises(StudyError, match=r"pruned by the study's retention"):
            run_study(load_study(path), corpus=small_documents(ran.setup.output), cache=ran.setup.output / "cache")
    finally:
        path.write_text(text)


def test_nothing_is_pruned_by_default(tmp_path, fork_point):
    setup = make_study(tmp_path / "plain", fork_point)
    assert setup.retention is None


def test_a_policy_changes_no_earlier_record(tmp_path, fork_point):
    plain = make_study(tmp_path / "plain", fork_point)
    assert make_study(tmp_path / "policy", fork_point, more=POLICY).digest == plain.digest


def test_the_plan_shows_the_peak_with_and_without(tmp_path, fork_point):
    (tmp_path / "fork").symlink_to(fork_point)
    study = load_training_study(write_study(tmp_path, TEXT + POLICY + "    seeds: 3\n"))
    peak = plan_study(study).peak
    assert (peak.without_policy, peak.with_policy) == (3 * 18, 18 + 2 * 15)


@pytest.mark.parametrize("policy", ["{}", "{top_k: two}", "{top_k: 2, last: 1}", "{top_k: 2, newest: 3}"])
def test_a_policy_that_is_not_one_is_refused(tmp_path, fork_point, policy):
    with pytest.raises(StudyError, match="retention"):
        make_study(tmp_path / "study", fork_point, more=f"    retention: {policy}\n")
