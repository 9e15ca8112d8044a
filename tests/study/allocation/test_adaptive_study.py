"""`allocation: adaptive` at the size of a toy: branches open, grow and stop within a budget; killed, it goes on the same."""

import shutil

import pytest

from tests.lm.stand_in import SEQUENCE
from tests.study.tiny_study import TEXT, make_fork_point, make_study, small_documents
from trajsoup.core import adaptive
from trajsoup.core.adaptive import Move
from trajsoup.errors import StudyError
from trajsoup.merge.verify import verify_soup
from trajsoup.report.sections.allocation import section
from trajsoup.report.writing import write_report
from trajsoup.study.allocation.training import TrainingWorld
from trajsoup.study.records.allocation import AllocationRecord
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.files import Records, writing
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.score.scorer import silent
from trajsoup.study.stages import STAGES
from trajsoup.study.status import stages_of
from trajsoup.study.workbench import Workbench

HORIZON = 24 * 8 * SEQUENCE
EAGER = f"    allocation: {{tokens: {2 * HORIZON}, looks: 3, sure: 0, shorten: 1}}\n"
EVERY = tuple(stage.name for stage in STAGES)


@pytest.fixture(scope="module")
def fork_point(tmp_path_factory):
    return make_fork_point(tmp_path_factory.mktemp("fork") / "model")


def run(folder, study, *, stages=EVERY):
    with writing(study.output) as records:
        bench = Workbench(
            study, cache=folder / "cache", progress=silent, corpus=small_documents(folder), records=records
        )
        for stage in STAGES:
            if stage.name in stages and stage.is_wanted(study):
                stage.run(bench)
    return Records(study.output)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, fork_point):
    folder = tmp_path_factory.mktemp("adaptive")
    study = make_study(folder, fork_point, more=EAGER)
    return folder, study, run(folder, study)


def test_the_budget_is_kept_and_the_study_goes_on_with_the_branches_that_are_left(ran):
    _, _, records = ran
    record = records.require(AllocationRecord)
    assert record.spent <= record.budget == 2 * HORIZON
    assert record.spent == sum(record.trained.values())
    assert {record.trained[name] for name in record.live} == {record.tokens}
    train = records.require(TrainRecord)
    assert tuple(b.branch for b in train.branches) == record.live
    assert all(max(c.tokens for c in b.checkpoints) == record.tokens for b in train.branches)
    assert {name for row in records.require(RowsRecord).rows for name in row.branches} <= set(record.live)


def test_every_decision_has_its_reasons_and_the_page_shows_them(ran):
    _, _, records = ran
    record = records.require(AllocationRecord)
    assert record.decisions[-1].move is Move.END
    assert all(decision.reasons for decision in record.decisions)
    (table,) = section(records).tables
    assert len(table.rows) == len(record.decisions)
    assert "tokens went into EXP1" in table.notes[0]


def test_every_stage_follows_and_the_page_tells_of_the_decisions(ran):
    _, study, records = ran
    assert {stage.state for stage in stages_of(study)} == {"done"}
    assert records.require(AnswerRecord).words
    assert verify_soup(study.output / "soup", full=True)
    page = write_report(study.output, images=False).page.read_text()
    assert records.require(AllocationRecord).decisions[0].reasons[0].split(":")[0] in page
    assert 'id="allocation"' in page


def test_a_study_that_was_killed_makes_the_same_decisions_from_what_is_there(ran):
    folder, study, records = ran
    before, record = records.require(TrainRecord), records.require(AllocationRecord)
    shutil.rmtree(study.output / "records")
    (study.output / "branches" / "EXP1" / "outcome.json").unlink()
    again = run(folder, study, stages=("plan", "train"))
    assert again.require(AllocationRecord) == record
    assert again.require(TrainRecord) == before


def test_what_was_trained_beyond_the_position_that_a_study_goes_back_to_is_no_part_of_it(
    tmp_path, fork_point, monkeypatch
):
    monkeypatch.setattr(adaptive, "_back", lambda look, gains: look.step is None and look.tables[-1].tokens == HORIZON)
    more = f"    allocation: {{tokens: {2 * HORIZON}, looks: 3, sure: 1, drop: 1, shorten: 1}}\n"
    study = make_study(tmp_path, fork_point, more=more)
    records = run(tmp_path, study, stages=("plan", "train"))
    record = records.require(AllocationRecord)
    assert Move.BACK in [decision.move for decision in record.decisions]
    assert record.tokens == record.positions[-2]
    assert record.spent == sum(record.trained.values()) <= record.budget
    assert record.trained["EXP1"] == record.positions[-1]
    (table,) = section(records).tables
    assert "EXP1 and EXP2 had gone on beyond that, which is no part of it" in table.notes[0]
    for branch in records.require(TrainRecord).branches:
        assert max(c.tokens for c in branch.checkpoints) == branch.tokens == record.tokens
    shutil.rmtree(study.output / "records")
    assert run(tmp_path, study, stages=("plan", "train")).require(AllocationRecord) == record


def test_looks_are_where_branches_save_and_the_baseline_comes_first(tmp_path, fork_point):
    more = "    allocation: adaptive\n"
    text = TEXT.replace("      EXP1: {}\n      EXP2: {seed: 1001}\n", "      EXP2: {seed: 1001}\n      EXP1: {}\n")
    study = make_study(tmp_path, fork_point, text=text, more=more)
    bench = Workbench(study, cache=tmp_path / "cache", progress=silent, corpus=small_documents(tmp_path))
    world = TrainingWorld(bench, bench.plan, fork_point=fork_point)
    assert world.names == ("EXP1", "EXP2", "EXP3")
    assert set(world.positions) <= set(bench.plan.positions.all())
    assert world.positions[-1] == HORIZON
    assert any("within" in note and "tokens in all" in note for note in bench.plan.notes)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("    allocation: clever\n", "allocation is 'clever': use adaptive"),
        ("    allocation: adaptive\n    limited: apart\n", "leave out `limited: apart`"),
        ("    allocation: adaptive\n    trainer: {command: train.sh}\n", "a command cannot be told"),
        ("    allocation: adaptive\n    neighbours: [wsd]\n", "leave out one"),
    ],
)
def test_what_cannot_be_combined_is_refused(tmp_path, fork_point, more, message):
    with pytest.raises(StudyError, match=message):
        make_study(tmp_path, fork_point, more=more)


def test_a_study_without_it_keeps_its_digest(tmp_path, fork_point):
    plain = make_study(tmp_path / "a", fork_point)
    asked = make_study(tmp_path / "b", fork_point, more="    allocation: adaptive\n")
    from trajsoup.store.fields import shaping

    assert "allocation" not in shaping(plain)
    assert plain.digest != asked.digest
