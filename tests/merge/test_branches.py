import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from tests.checkpoints import write_checkpoint
from tests.runs import fork_point, write_run
from trajsoup.core.pool import Unit
from trajsoup.errors import StudyError
from trajsoup.merge.branches import Branch, Branches, load_branches, read_branches, save_branches, scan_branches
from trajsoup.store.runs import Saved


def bare(run, *names):
    """A run of checkpoints that nobody scored."""
    for name in names:
        write_checkpoint(run / name, {"w": torch.ones(2)})
    return run


def study_file(folder, text):
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def test_branches_are_named_by_their_folders_and_their_order_names_no_baseline(tmp_path):
    study = scan_branches([bare(tmp_path / "b", "step_1"), bare(tmp_path / "a", "step_1")])
    assert [b.name for b in study.branches] == ["b", "a"]
    assert study.baseline is None


def test_runs_of_one_name_are_told_apart_by_the_folder_above(tmp_path):
    runs = [bare(tmp_path / "x" / "seed" / "run", "step_1"), bare(tmp_path / "y" / "seed" / "run", "step_1")]
    assert [b.name for b in scan_branches(runs).branches] == ["x/seed/run", "y/seed/run"]


def test_one_run_given_twice_is_refused_even_through_a_link(tmp_path):
    run = bare(tmp_path / "a", "step_1")
    (tmp_path / "alias").symlink_to(run)
    for other in (run, tmp_path / "alias", tmp_path / "b" / ".." / "a"):
        with pytest.raises(StudyError, match=r"is given twice: name each run once"):
            scan_branches([run, other])


def test_step_zero_becomes_the_fork_point_and_no_candidate(tmp_path):
    study = scan_branches([bare(tmp_path / "a", "step_0", "step_1", "step_2"), bare(tmp_path / "b", "step_1")])
    assert study.fork_point == tmp_path / "a" / "step_0"
    assert [c.tokens for c in study.pools()[0].candidates] == [1, 2]
    assert any("step_0 is at step 0: taken as the fork point" in note for note in study.notes)


def test_a_fork_point_that_is_given_wins_over_step_zero(tmp_path):
    given_one = fork_point(tmp_path / "base")
    study = scan_branches([bare(tmp_path / "a", "step_0", "step_1")], fork_point=given_one)
    assert study.fork_point == given_one
    assert len(study.pools()[0].candidates) == 1


def test_a_run_of_step_zero_alone_keeps_it(tmp_path):
    study = scan_branches([bare(tmp_path / "a", "step_0")])
    assert study.fork_point is None
    assert len(study.branches[0].checkpoints) == 1


def test_what_is_missing_is_said_with_the_remedy(tmp_path):
    study = scan_branches([bare(tmp_path / "a", "step_1", "step_2")])
    assert "steps" not in "".join(study.notes)  # `scan` says it once, not every command again
    notes = "\n".join([*study.hints, *study.notes])
    assert "tokens seen are not recorded, so positions are steps" in notes
    assert "--tokens-per-step" in notes
    assert "include_num_input_tokens_seen" in notes
    assert "2 of 2 checkpoints have no training loss (needed by the screen): add a train_loss column" in notes
    assert "2 of 2 checkpoints have no validation loss (needed to rank by loss): add a val_loss column" in notes
    assert "merge --validation FILE" in notes


def test_nothing_is_said_where_nothing_is_missing(tmp_path):
    study = scan_branches([write_run(tmp_path / "a", val_losses=[2.2, 2.1])])
    assert study.notes == ()
    assert study.unit is Unit.TOKENS
    assert [c.tokens for c in study.pools()[0].candidates] == [10_000, 20_000]


def test_positions_are_steps_as_soon_as_one_checkpoint_lacks_tokens(tmp_path):
    study = scan_branches([write_run(tmp_path / "a", val_losses=[2.2]), bare(tmp_path / "b", "step_3")])
    assert study.unit is Unit.STEPS
    assert [pool.candidates[0].tokens for pool in study.pools()] == [10, 3]


def test_tokens_per_step_turns_steps_into_tokens(tmp_path):
    study = scan_branches([bare(tmp_path / "a", "step_3")], tokens_per_step=512)
    assert study.unit is Unit.TOKENS
    assert study.pools()[0].candidates[0].tokens == 1536


def test_a_study_survives_saving_and_loading(tmp_path):
    runs = [
        write_run(tmp_path / "runs" / "a", val_losses=[2.25, 2.125], accuracies=[0.5, 0.25]),
        write_run(tmp_path / "runs" / "b", val_losses=[1 / 3, 1e-9], train_losses=[2.0, float("inf")]),
    ]
    study = scan_branches(runs, fork_point=fork_point(tmp_path / "base"))
    save_branches(study, tmp_path / "study.yaml")
    assert load_branches(tmp_path / "study.yaml") == study
    assert read_branches([tmp_path / "study.yaml"]) == study


def test_a_study_can_move_together_with_its_runs(tmp_path):
    write_run(tmp_path / "here" / "a", val_losses=[2.2])
    save_branches(scan_branches([tmp_path / "here" / "a"]), tmp_path / "here" / "study.yaml")
    (tmp_path / "here").rename(tmp_path / "there")
    study = load_branches(tmp_path / "there" / "study.yaml")
    assert study.branches[0].checkpoints[0].path == tmp_path / "there" / "a" / "checkpoint-10"


def test_a_checkpoint_that_is_a_link_keeps_its_own_name(tmp_path):
    run = bare(tmp_path / "a", "step_1")
    blob = tmp_path / "blobs" / "0a1b"
    blob.parent.mkdir()
    (run / "step_1" / "model.safetensors").rename(blob)
    (run / "step_1").rmdir()
    (run / "step_1.safetensors").symlink_to(blob)
    save_branches(scan_branches([run]), tmp_path / "study.yaml")
    assert load_branches(tmp_path / "study.yaml").branches[0].checkpoints[0].path == run / "step_1.safetensors"


def test_a_study_file_reached_through_a_link_finds_its_runs(tmp_path):
    write_run(tmp_path / "a", val_losses=[2.2])
    (tmp_path / "deep" / "er").mkdir(parents=True)
    save_branches(scan_branches([tmp_path / "a"]), tmp_path / "deep" / "er" / "study.yaml")
    (tmp_path / "short").symlink_to(tmp_path / "deep" / "er")
    (candidate,) = load_branches(tmp_path / "short" / "study.yaml").pools()[0].candidates
    assert candidate.key == str(tmp_path / "a" / "checkpoint-10")


HOSTILE = ["a\nb", "a: b", "- x", "{a}, [b]", "'", '"', "#", "null", "1e3", "~", "é☃", "\t", "\u2028", "!t", "&a", "*a"]


@given(st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1).filter(str.strip)))
def test_any_branch_and_folder_name_survives_the_study_file(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("study")
    path = folder / "x" / name.replace("/", "_").replace("\0", "_").replace("..", "_").strip(".")
    saved = Saved(path=path / ("c" + path.name), step=1, val_loss=2.5)
    study = Branches(branches=(Branch(name=name, path=path, checkpoints=(saved,)),), baseline=name)
    save_branches(study, folder / "study.yaml")
    assert load_branches(folder / "study.yaml") == study


GOOD = "branches:\n  a:\n    path: a\n    checkpoints:\n      - {path: c, step: 1}\n"


def test_a_study_may_be_written_by_hand(tmp_path):
    text = "branches:\n  1:\n    path: runs/a\n    checkpoints:\n      - {path: c1, tokens: 5e9, val_loss: 2}\n"
    study = load_branches(study_file(tmp_path, text))
    assert study.branches[0].name == "1"
    assert study.branches[0].checkpoints == (
        Saved(path=tmp_path / "runs" / "a" / "c1", tokens=5_000_000_000, val_loss=2.0),
    )
    assert study.tolerance == 0.01


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("branches: {}\n", r"has no branches: write it with `trajsoup scan"),
        ("fork_point: x\n", r"has no branches"),
        (GOOD + "brnaches: 1\n", r"unknown key 'brnaches': did you mean 'branches'"),
        (GOOD + "screen: {tolerence: 0.1}\n", r"screen: unknown key 'tolerence': did you mean 'tolerance'"),
        (GOOD + "screen: {tolerance: wide}\n", r"screen: tolerance is 'wide', which is not a finite number"),
        (GOOD + "screen: 3\n", r"screen: expected `key: value` lines, got 3"),
        (
            GOOD.replace("step: 1", "val_los: 1"),
            r"branches: a: checkpoints, number 1: unknown key 'val_los'.*'val_loss'",
        ),
        (GOOD.replace("step: 1", "val_loss: low"), r"checkpoints, number 1: val_loss is 'low', which is not a number"),
        (GOOD.replace("step: 1", "accuracy: true"), r"checkpoints, number 1: accuracy is True, which is not a number"),
        (GOOD.replace("step: 1", "tokens: 1.5"), r"checkpoints, number 1: tokens is 1.5: use a whole number"),
        (GOOD.replace("step: 1", "step: -1"), r"checkpoints, number 1: step is -1: use a whole number"),
        (GOOD.replace("step: 1", "step: [1]"), r"checkpoints, number 1: step is \[1\], which is not a finite number"),
        (GOOD.replace("path: c, ", ""), r"checkpoints, number 1: `path` is missing"),
        ("branches: {a: {path: a}}\n", r"branches: a: lists no checkpoints"),
        ("branches: {a: [1]}\n", r"branches: a: expected `key: value` lines"),
        (
            "branches: {a: {path: a, checkpoints: [c]}}\n",
            r"checkpoints, number 1: expected `key: value` lines, got 'c'",
        ),
    ],
)
def test_a_wrong_study_file_is_named_with_the_place(tmp_path, text, message):
    with pytest.raises(StudyError, match=rf"study\.yaml.*{message}"):
        load_branches(study_file(tmp_path, text))


def test_a_study_file_may_be_a_string(runs, tmp_path):
    found = scan_branches([str(runs / "EXP1")], fork_point=str(runs / "EXP2" / "checkpoint-10"))
    save_branches(found, str(tmp_path / "found.yaml"))
    assert load_branches(str(tmp_path / "found.yaml")).branches == load_branches(tmp_path / "found.yaml").branches
    assert read_branches([str(tmp_path / "found.yaml")]).fork_point == runs / "EXP2" / "checkpoint-10"
    with pytest.raises(StudyError, match="a study file lies on this machine"):
        load_branches("s3://bucket/found.yaml")
