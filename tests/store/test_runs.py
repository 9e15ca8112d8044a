import json

import pytest
import torch

from tests.checkpoints import write_checkpoint
from trajsoup.errors import ScanError
from trajsoup.store.runs import scan_run

TENSORS = {"w": torch.ones(4), "v": torch.zeros(2)}


def folders(run, *names, shards=1):
    for name in names:
        write_checkpoint(run / name, TENSORS, shards=shards)
    return run


def loose(run, *names):
    for name in names:
        file = write_checkpoint(run / "once", TENSORS) / "model.safetensors"
        file.rename(run / name)
        (run / "once").rmdir()
    return run


def steps(run):
    return [(s.path.name, s.step) for s in run.checkpoints]


def metrics(run, text):
    (run / "metrics.csv").write_text(text)
    return run


@pytest.mark.parametrize("shards", [1, 2])
def test_folders_are_found_and_ordered_by_step_not_by_name(tmp_path, shards):
    run = scan_run(folders(tmp_path, "step_100", "step_10", "step_9", shards=shards))
    assert steps(run) == [("step_9", 9), ("step_10", 10), ("step_100", 100)]
    assert run.notes == ()


def test_loose_files_are_checkpoints_of_their_own(tmp_path):
    run = scan_run(loose(tmp_path, "ckpt_2.safetensors", "ckpt_10.safetensors"))
    assert steps(run) == [("ckpt_2.safetensors", 2), ("ckpt_10.safetensors", 10)]


@pytest.mark.parametrize("shards", [1, 2])
def test_a_folder_that_is_a_checkpoint_itself_is_a_run_of_one(tmp_path, shards):
    run = scan_run(folders(tmp_path, "final", shards=shards) / "final")
    assert steps(run) == [("final", None)]


def test_shards_without_an_index_are_one_checkpoint(tmp_path):
    folders(tmp_path, "final", shards=2)
    (tmp_path / "final" / "model.safetensors.index.json").unlink()
    assert steps(scan_run(tmp_path / "final")) == [("final", None)]


def test_one_file_is_a_run_of_one(tmp_path):
    loose(tmp_path, "model-7.safetensors", "model-8.safetensors")
    assert steps(scan_run(tmp_path / "model-7.safetensors")) == [("model-7.safetensors", 7)]


def test_checkpoints_in_an_inner_folder_are_found_with_metrics_beside_either(tmp_path):
    inner = folders(tmp_path / "checkpoints", "iter_5", "iter_6")
    metrics(inner, "step,val_loss\n5,2.5\n")
    metrics(tmp_path, "step,train_loss\n6,3.5\n")
    run = scan_run(tmp_path)
    assert [(s.step, s.train_loss, s.val_loss) for s in run.checkpoints] == [(5, None, 2.5), (6, 3.5, None)]


def test_hidden_folders_are_not_searched(tmp_path):
    folders(tmp_path, "step_1", ".soup.trajsoup-unfinished-x/step_2", ".cache")
    assert steps(scan_run(tmp_path)) == [("step_1", 1)]


@pytest.mark.parametrize(
    ("name", "step", "tokens"),
    [
        ("checkpoint-500", 500, None),
        ("step1000-tokens5B", 1000, 5_000_000_000),
        ("stage2-ingredient1-step9000-tokens10B", 9000, 10_000_000_000),
        ("step200-tokens4.2B", 200, 4_200_000_000),
        ("iter_0000070", 70, None),
        ("global_step12", 12, None),
        ("0042", 42, None),
        ("epoch=1-step=300", 300, None),
        ("tokens_250M", None, 250_000_000),
    ],
)
def test_steps_and_tokens_are_read_from_the_usual_names(tmp_path, name, step, tokens):
    (saved,) = scan_run(folders(tmp_path, name)).checkpoints
    assert (saved.step, saved.tokens) == (step, tokens)


def test_two_names_for_one_step_are_refused(tmp_path):
    with pytest.raises(ScanError, match=r"ckpt-10 and step_10 are both step 10: .*must not count twice"):
        scan_run(folders(tmp_path, "step_10", "ckpt-10", "step_100"))


def test_names_without_a_number_are_refused_unless_metrics_place_them(tmp_path):
    run = folders(tmp_path, "early", "late")
    with pytest.raises(ScanError, match=r"no step can be read from the name 'early' and 1 more: .*metrics\.csv"):
        scan_run(run)
    metrics(run, "checkpoint,tokens,val_loss\nlate,2000,2.1\nearly,1000,2.2\n")
    assert [(s.path.name, s.tokens, s.val_loss) for s in scan_run(run).checkpoints] == [
        ("early", 1000, 2.2),
        ("late", 2000, 2.1),
    ]


def test_metrics_may_name_a_checkpoint_by_its_path(tmp_path):
    metrics(loose(tmp_path, "a-1.safetensors"), "path,val_loss\n/elsewhere/a-1.safetensors,2.5\n")
    assert scan_run(tmp_path).checkpoints[0].val_loss == 2.5


def test_scored_rows_that_match_no_checkpoint_are_said(tmp_path):
    run = folders(tmp_path, "step_10", "step_20")
    metrics(
        run, "checkpoint,step,loss,val_loss\n,5,3.0,\nstep_10,,2.9,2.5\nstep_30,,2.8,2.4\n,40,2.7,2.3\n,20,2.7,2.3\n"
    )
    (note,) = scan_run(run).notes
    assert note == f"{run}: 2 of 4 scored rows of its metrics match no checkpoint and are not used: step_30, step 40"


def test_a_lone_file_does_not_complain_of_its_neighbours_scores(tmp_path):
    metrics(loose(tmp_path, "a-1.safetensors", "a-2.safetensors"), "checkpoint,val_loss\na-1,2.5\na-2,2.4\n")
    run = scan_run(tmp_path / "a-2.safetensors")
    assert (run.notes, run.checkpoints[0].val_loss) == ((), 2.4)


def test_step_10_takes_no_score_of_step_100(tmp_path):
    metrics(folders(tmp_path, "step_10", "step_100"), "checkpoint,val_loss\nstep_100,1.0\n")
    assert [s.val_loss for s in scan_run(tmp_path).checkpoints] == [None, 1.0]


def test_the_training_loss_is_the_mean_since_the_checkpoint_before(tmp_path):
    metrics(folders(tmp_path, "step_2", "step_4"), "step,loss\n1,5.0\n2,4.0\n3,3.0\n4,2.0\n5,1.0\n")
    found = scan_run(tmp_path).checkpoints
    assert [s.train_loss for s in found] == [4.5, 2.5]
    assert [s.losses_logged for s in found] == [2, 2]


def test_of_two_scores_at_one_step_the_later_counts(tmp_path):
    metrics(folders(tmp_path, "step_2"), "step,val_loss\n2,5.0\n2,4.0\n")
    assert scan_run(tmp_path).checkpoints[0].val_loss == 4.0


def test_tokens_per_step_fills_in_what_no_log_says(tmp_path):
    metrics(folders(tmp_path, "step_2", "step_4"), "step,tokens\n2,7\n")
    assert [s.tokens for s in scan_run(tmp_path, tokens_per_step=100).checkpoints] == [7, 400]


def test_the_final_model_of_a_trainer_is_ignored_with_a_note(tmp_path):
    run = scan_run(folders(tmp_path, ".", "checkpoint-10", "checkpoint-20"))
    assert steps(run) == [("checkpoint-10", 10), ("checkpoint-20", 20)]
    assert run.notes == (f"{tmp_path} itself holds a model too; only its checkpoint folders are used",)


def test_the_last_trainer_state_tells_of_all_checkpoints(tmp_path):
    folders(tmp_path, "checkpoint-1", "checkpoint-2")
    history = [{"loss": 3.0, "step": 1}, {"eval_loss": 2.9, "step": 1}, {"loss": 2.0, "step": 2}]
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    assert [(s.train_loss, s.val_loss) for s in scan_run(tmp_path).checkpoints] == [(3.0, 2.9), (2.0, None)]


def test_a_damaged_trainer_state_is_named(tmp_path):
    folders(tmp_path, "checkpoint-1")
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text("{")
    with pytest.raises(ScanError, match=r"trainer_state\.json is damaged .*: copy or save it again"):
        scan_run(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "mp_rank_00_model_states.pt", "__0_0.distcp"])
def test_a_run_of_pickles_says_how_to_convert_them(tmp_path, name):
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ScanError, match=rf"{name} is a part of no checkpoint that is read here"):
        scan_run(tmp_path)


def test_checkpoints_left_out_because_they_are_pickles_are_noted(tmp_path):
    folders(tmp_path, "checkpoint-5")
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-6" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    run = scan_run(tmp_path)
    assert steps(run) == [("checkpoint-5", 5)]
    assert run.notes == (f"{tmp_path / 'checkpoint-6'} holds no checkpoint: left out",)


def test_an_empty_folder_says_what_is_looked_for(tmp_path):
    with pytest.raises(ScanError, match=r"holds no checkpoint: name a folder with checkpoint-N/ folders"):
        scan_run(tmp_path)


def test_a_path_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(ScanError, match=r"there is no run at .*nowhere: check the path"):
        scan_run(tmp_path / "nowhere")


def test_a_file_of_another_kind_is_no_run(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ScanError, match=r"notes\.txt holds no checkpoint"):
        scan_run(tmp_path / "notes.txt")


def test_what_the_builtin_trainer_goes_on_from_is_no_checkpoint(tmp_path):
    run = folders(tmp_path, "checkpoint-4", "checkpoint-8")
    (run / "resume-state-6144").mkdir()
    torch.save({"w": torch.ones(4)}, run / "resume-state-6144" / "pytorch_model.bin")
    assert steps(scan_run(run)) == [("checkpoint-4", 4), ("checkpoint-8", 8)]


def test_a_run_evaluated_at_other_steps_takes_the_nearest_score_within_half_an_interval_and_says_so(tmp_path):
    text = "step,val_loss\n50,2.5\n110,2.4\n500,1.0\n"
    run = scan_run(metrics(folders(tmp_path, "checkpoint-60", "checkpoint-120", "checkpoint-180"), text))
    assert [s.val_loss for s in run.checkpoints] == [2.5, 2.4, None]
    assert run.notes[-1] == (
        "saved and evaluated at different steps: the nearest score within 30 steps counts (checkpoint-60 at step 50, "
        "checkpoint-120 at step 110)"
    )


def test_of_a_step_that_a_resumed_run_made_twice_the_later_loss_counts(tmp_path):
    text = "step,train_loss\n1,4.0\n2,9.0\n3,9.0\n2,3.0\n3,2.0\n"
    (saved,) = scan_run(metrics(folders(tmp_path, "checkpoint-3"), text)).checkpoints
    assert saved.train_loss == 3.0
    assert saved.losses_logged == 3


def test_several_eval_sets_of_a_trainer_are_told_apart_by_name(tmp_path):
    folders(tmp_path, "checkpoint-10")
    history = [{"step": 10, "eval_wiki_loss": 2.5}, {"step": 10, "eval_code_loss": 1.5}, {"step": 10, "loss": 2.0}]
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text(
        json.dumps({"log_history": history, "global_step": 10})
    )
    assert scan_run(tmp_path).checkpoints[0].val_loss is None
    assert "name one with --metric" in scan_run(tmp_path).notes[0]
    assert scan_run(tmp_path, metric="eval_code_loss").checkpoints[0].val_loss == 1.5


@pytest.mark.parametrize(
    ("losses", "error"), [((2.0, 1.9), 4.30 / 2 * 0.05), ((2.0, 1.9, 2.0), 4.30 / 2 * 0.1 / 6**0.5)]
)
def test_the_error_of_few_losses_is_wide(tmp_path, losses, error):
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, 1))
    metrics(folders(tmp_path, f"step_{len(losses)}"), f"step,loss\n{rows}")
    (found,) = scan_run(tmp_path).checkpoints
    assert found.train_error == pytest.approx(error)
