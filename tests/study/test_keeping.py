"""`keep: needed`: the same soup with few checkpoints on disk; killed, it goes on; nothing that is not its own is deleted."""

import dataclasses

import pytest

from tests.command import refused
from tests.lm.stand_in import SEQUENCE
from tests.study.tiny_study import TEXT, load_study, make_study, run_study, run_tiny, small_documents
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.retention import still_needed
from trajsoup.core.soup import Row
from trajsoup.errors import ScoreError, StudyError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import plan_row
from trajsoup.merge.verify import verify_soup
from trajsoup.report.sections.answer import Answer
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.geometry import GeometryRecord
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.score.scorer import silent
from trajsoup.study.stages.answer import write_soup
from trajsoup.study.train.deleted import DELETED, read_deleted
from trajsoup.study.train.plan import most_in_sums, most_kept, plan_study, stops_of, sum_stops
from trajsoup.study.train.sums import PARTS, read_sums
from trajsoup.study.workbench import Workbench

FEW = (
    TEXT.replace(f"horizon: {24 * 8 * SEQUENCE}", f"horizon: {12 * 8 * SEQUENCE}")
    .replace(f"checkpoint_every: {4 * 8 * SEQUENCE}", f"checkpoint_every: {2 * 8 * SEQUENCE}")
    .replace("      EXP3: {peak_lr: 2e-3, global_batch: 4}\n", "")
    .replace("ks: [1, 2, 3], horizons: 2", "ks: [1], horizons: 1")
)
NONE = "    sweeps: []\n"
NEEDED = NONE + "    keep: needed\n"
SAVED, K, STOPS = 6, 1, 2  # checkpoints of a branch; T/2 and T


def saved(setup, branch):
    return sorted(path.name for path in (setup.output / "branches" / branch).glob("checkpoint-*"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory, fork_point):
    return run_tiny(tmp_path_factory.mktemp("keep") / "all", fork_point, text=FEW, more=NONE)


@pytest.fixture(scope="module")
def sparing(tmp_path_factory, fork_point):
    """The study that was killed in the middle of its training, and what lay on disk at most before and after."""
    folder = tmp_path_factory.mktemp("keep") / "needed"
    setup = make_study(folder, fork_point, text=FEW, more=NEEDED)
    peak = dict.fromkeys(("EXP1", "EXP2"), 0)

    def count(what, done, total):
        for branch in peak:
            peak[branch] = max(peak[branch], len(saved(setup, branch)))

    def count_until_killed(what, done, total):
        count(what, done, total)
        if len(read_deleted(setup.output)) > 1:
            raise KeyboardInterrupt

    asked = {"corpus": small_documents(folder), "cache": folder / "cache"}
    with pytest.raises(KeyboardInterrupt):
        run_study(setup, on_score=count_until_killed, **asked)
    return run_study(setup, on_score=count, **asked), peak


@pytest.fixture(scope="module")
def summing(tmp_path_factory, fork_point):
    """The same with Full Soup: killed twice, and what its sums took of disk at most, in checkpoints."""
    folder = tmp_path_factory.mktemp("keep") / "sums"
    text = FEW.replace("ks: [1]", "methods: [full-soup], ks: [1]")
    setup = make_study(folder, fork_point, text=text, more=NEEDED)
    peak = dict.fromkeys(("EXP1", "EXP2"), 0)
    asked = {"corpus": small_documents(folder), "cache": folder / "cache"}

    def killed_at(deleted):
        def count(what, done, total):
            for branch in peak:
                parts = [*(setup.output / "sums").glob(f"{branch}/[0-9]*/*/model.safetensors")]
                peak[branch] = max(peak[branch], len(parts))
            if len(read_deleted(setup.output)) > deleted:
                raise KeyboardInterrupt

        return count

    for deleted in (0, 2):
        with pytest.raises(KeyboardInterrupt):
            run_study(setup, on_score=killed_at(deleted), **asked)
    return run_study(setup, on_score=killed_at(100), **asked), peak


def test_full_soup_is_made_of_sums_with_the_scores_of_a_study_that_kept_everything(summing, plain):
    ran, peak = summing
    mine, every = ({row.name: row for row in of.records.require(RowsRecord).rows} for of in (ran, plain))
    assert mine.keys() == every.keys()
    for name, row in mine.items():
        assert dataclasses.replace(row, sums=()) == every[name]
        assert bool(row.sums) == ("full-soup" in name)
        assert all((ran.setup.output / part).is_dir() for part in row.sums)
    tested, reference = (of.records.require(EvaluationsRecord).evaluations for of in (ran, plain))
    assert tested == reference
    plan = plan_study(ran.setup)
    for run in plan.runs:
        assert sum_stops(ran.setup, run) == stops_of(ran.setup, run)
        most = most_in_sums(ran.setup, run, dtype=plan.dtype)
        assert 0 < peak[run.branch] <= most == PARTS["F32"] * (STOPS + 1)
        known = [one for one in read_sums(ran.setup.output) if one.run == run.name]
        assert [one.tokens for one in known] == list(sum_stops(ran.setup, run))
        hashes = {c.key: c.sha256 for b in plain.records.require(TrainRecord).branches for c in b.checkpoints}
        assert known[-1].members == {key: sha for key, sha in hashes.items() if f"/{run.branch}/" in key}
    assert f"sums for Full Soup take the room of {most} more" in " ".join(plan.notes)


def test_the_full_soup_that_is_written_has_the_bytes_of_one_over_all_checkpoints(summing, plain):
    ran, _ = summing
    row = next(row for row in ran.records.require(RowsRecord).rows if row.name == "full-soup/extended")
    reference = next(row for row in plain.records.require(RowsRecord).rows if row.name == "full-soup/extended")
    bench = Workbench(ran.setup, cache=ran.setup.output / "cache", progress=silent)
    soup = write_soup(bench, row)
    assert write_soup(bench, row) == soup  # made of the same: left as it is
    paths = {str(plain.setup.output / key): weight for key, weight in reference.weights.items()}
    make_soup(plan_row(Row(name="all", weights=paths), fork_point=plain.setup.fork_point), soup.with_name("all"))
    for file in open_checkpoint(soup.with_name("all")).files:
        assert (soup / file.name).read_bytes() == file.read_bytes()
    assert verify_soup(soup, full=True)
    answer = Answer(record=ran.records.require(AnswerRecord), lines=(), level=None, seeds=1, shipped=row)
    assert answer.command is None  # no merge of what is gone


def test_no_more_lies_on_disk_than_the_k_best_of_each_stop_and_two(sparing):
    ran, peak = sparing
    plan = plan_study(ran.setup)
    for run in plan.runs:
        assert len(stops_of(ran.setup, run)) == STOPS
        assert peak[run.branch] <= most_kept(ran.setup, run) <= (K + 1) * STOPS + 1 < SAVED
        assert 0 < len(saved(ran.setup, run.branch)) <= peak[run.branch]
    assert f"at most {most_kept(ran.setup, plan.runs[0])} of the {SAVED} checkpoints" in " ".join(plan.notes)


def test_the_soup_and_the_scores_are_those_of_a_study_that_kept_everything(sparing, plain):
    ran, _ = sparing
    for file in open_checkpoint(plain.soup).files:
        assert (ran.soup / file.name).read_bytes() == file.read_bytes()
    assert verify_soup(ran.soup, full=True)
    assert ran.records.require(TrainRecord).branches == plain.records.require(TrainRecord).branches
    assert ran.records.require(ValidationRecord).checkpoints == plain.records.require(ValidationRecord).checkpoints
    assert ran.records.require(TheoryRecord).measured == plain.records.require(TheoryRecord).measured
    every = {row.name: row.weights for row in plain.records.require(RowsRecord).rows}
    mine = {row.name: row.weights for row in ran.records.require(RowsRecord).rows}
    assert mine == {name: weights for name, weights in every.items() if "full-soup" not in name}


def test_what_takes_every_checkpoint_is_left_out(sparing, plain):
    ran, _ = sparing
    assert ran.records.read(GeometryRecord) is None
    assert plain.records.read(GeometryRecord) is not None


def test_finished_it_is_finished_and_what_needs_more_is_refused_with_the_cure(sparing):
    ran, _ = sparing
    assert run_study(ran.setup, corpus=None, cache=ran.setup.output / "nowhere").made == ()
    assert "with `keep: all`" in " ".join(refused("geometry", ran.setup.path).split())
    path = ran.setup.path
    text = path.read_text()
    path.write_text(text.replace("validation_tokens: 4k", "validation_tokens: 1k"))
    try:
        with pytest.raises(ScoreError, match=r"deleted by the study's `keep: needed`.*another `output`"):
            run_study(load_study(path), corpus=small_documents(path.parent), cache=path.parent / "cache")
    finally:
        path.write_text(text)


def test_a_checkpoint_that_should_have_been_deleted_when_it_was_killed_counts_as_there(sparing):
    ran, _ = sparing
    key, gone = next(iter(read_deleted(ran.setup.output).items()))
    (ran.setup.output / key).mkdir()
    try:
        assert key not in read_deleted(ran.setup.output)
    finally:
        (ran.setup.output / key).rmdir()
    assert read_deleted(ran.setup.output)[key] == gone
    assert (ran.setup.output / DELETED).is_file()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("    keep: some\n", "keep"),
        ("    keep: needed\n", "'crossing' takes other ones.*write `sweeps: \\[\\]`"),
        (NEEDED + "    trainer: {command: train.sh}\n", "a command cannot be told: use the builtin"),
        (NEEDED + "    allocation: adaptive\n", "leave out `allocation`"),
        (NEEDED + "    neighbours: [wsd]\n", "leave out `neighbours`"),
    ],
)
def test_what_would_need_deleted_checkpoints_is_refused(tmp_path, fork_point, more, message):
    with pytest.raises(StudyError, match=message):
        make_study(tmp_path, fork_point, text=FEW, more=more)


def test_a_method_that_takes_other_checkpoints_is_refused(tmp_path, fork_point):
    text = FEW.replace("ks: [1]", "methods: [greedy-soup], ks: [1]")
    with pytest.raises(StudyError, match="'greedy-soup' takes other ones than the K best"):
        make_study(tmp_path, fork_point, text=text, more=NEEDED)


def pool_of(*losses):
    return Pool(
        branch="A",
        candidates=tuple(
            Candidate(key=f"c{i}", branch="A", tokens=10 * i, val_loss=loss) for i, loss in enumerate(losses, start=1)
        ),
    )


def test_what_is_needed_of_the_whole_is_needed_of_every_beginning():
    losses = [5.0, 3.0, 4.0, float("nan"), 2.5, 6.0, 2.6, 2.4]
    end = still_needed(pool_of(*losses), stops=[40, 80], top_k=2)
    assert end == {"c2", "c3", "c5", "c8"}
    for n in range(1, len(losses)):
        beginning = pool_of(*losses[:n])
        needed = still_needed(beginning, stops=[40, 80], top_k=2)
        assert {key for key in end if key in {c.key for c in beginning.candidates}} <= needed


def test_what_has_no_score_is_never_given_up():
    assert still_needed(pool_of(1.0, None, 3.0, 2.0), stops=[], top_k=1) == {"c1", "c2", "c4"}
    assert still_needed(pool_of(), stops=[10], top_k=1) == set()
