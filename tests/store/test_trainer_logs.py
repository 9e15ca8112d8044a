"""Run folders of torchtitan, OLMo-core, Megatron and DeepSpeed, with what each logs."""

import json
import random
import shutil
import struct

import numpy as np
import pytest
import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from tests.wandb_log import write_wandb
from trajsoup.errors import ScanError
from trajsoup.store.event_files import read_event_files
from trajsoup.store.runs import scan_run
from trajsoup.store.wandb_files import read_wandb_files


def write_events(folder, rows, *, tensors=False):
    """Event files by the real writer: scalars as torch's SummaryWriter has them, or as TensorFlow 2 does."""
    writer = EventFileWriter(str(folder))
    for step, tags in rows.items():
        for tag, number in tags.items():
            kind = {"tensor": make_tensor_proto(np.float32(number))} if tensors else {"simple_value": number}
            writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, **kind)])))
    writer.close()
    return next(iter(folder.iterdir()))


@pytest.fixture
def checkpoint(training_checkpoints):
    return training_checkpoints / "one-rank" / "step-1"


def write_run(folder, checkpoint, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(checkpoint)
    return folder


def positions(run):
    return [(saved.step, saved.tokens) for saved in run.checkpoints]


@pytest.mark.parametrize("tensors", [False, True])
def test_torchtitans_run_has_steps_tokens_and_losses(checkpoint, tmp_path, tensors):
    write_run(tmp_path, checkpoint, "checkpoint/step-10", "checkpoint/step-20")
    rows = {
        step: {"loss_metrics/global_avg_loss": 3 - step / 100, "n_tokens_seen": step * 4096.0, "lr": 0.1}
        for step in range(1, 21)
    }
    rows[20]["validation_metrics/loss"] = 2.5
    write_events(tmp_path / "tb" / "20260101-1200", rows, tensors=tensors)
    run = scan_run(tmp_path)
    assert positions(run) == [(10, 40960), (20, 81920)]
    first, second = run.checkpoints
    assert first.losses_logged == second.losses_logged == 10
    assert second.train_loss == pytest.approx(np.mean([3 - s / 100 for s in range(11, 21)]), abs=1e-6)
    assert (first.val_loss, second.val_loss) == (None, 2.5)


def test_a_resumed_run_counts_its_later_file_where_steps_were_trained_again(checkpoint, tmp_path):
    write_run(tmp_path, checkpoint, "step-2")
    early = write_events(tmp_path / "a", {1: {"loss": 1.0}, 2: {"loss": 5.0}})
    late = write_events(tmp_path / "b", {2: {"loss": 3.0}})
    shutil.move(early, tmp_path / "events.out.tfevents.1.host")
    shutil.move(late, tmp_path / "events.out.tfevents.2.host")
    assert scan_run(tmp_path).checkpoints[0].train_loss == 2.0


def test_metrics_of_the_users_own_come_before_event_files(checkpoint, tmp_path):
    write_run(tmp_path, checkpoint, "step-2")
    write_events(tmp_path / "tb", {2: {"loss": 5.0}})
    (tmp_path / "metrics.csv").write_text("step,train_loss\n2,1.5\n")
    assert scan_run(tmp_path).checkpoints[0].train_loss == 1.5


def test_olmo_cores_trainer_state_gives_the_tokens(checkpoint, tmp_path):
    for step in (100, 200):
        write_run(tmp_path, checkpoint, f"step{step}/model_and_optim")
        (tmp_path / f"step{step}" / "train").mkdir()
        state = {
            "global_step": step,
            "global_train_tokens_seen": step * 10**7,
            "rng": {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()},
            "callbacks": {"speed": {}},
        }
        torch.save(state, tmp_path / f"step{step}" / "train" / "rank0.pt")
    assert positions(scan_run(tmp_path)) == [(100, 10**9), (200, 2 * 10**9)]
    assert positions(scan_run(tmp_path / "step100")) == [(100, 10**9)]


def test_megatrons_iterations_are_steps_and_an_unfinished_one_is_left_out(checkpoint, tmp_path):
    write_run(tmp_path, checkpoint, "iter_0000100", "iter_0000200", "iter_0000300")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("200\n")
    write_events(tmp_path / "tensorboard", {100: {"lm loss": 2.0, "lm loss validation": 2.5}, 200: {"lm loss": 1.0}})
    run = scan_run(tmp_path)
    assert [(s.step, s.train_loss, s.val_loss) for s in run.checkpoints] == [(100, 2.0, 2.5), (200, 1.0, None)]
    assert run.notes == (f"{tmp_path / 'iter_0000300'} is newer than latest_checkpointed_iteration.txt says: left out",)


def test_deepspeeds_steps_are_read_and_a_summary_of_wandb_gives_the_last_loss(checkpoint, tmp_path):
    write_run(tmp_path, checkpoint, "global_step5", "global_step10")
    files = tmp_path / "wandb" / "run-1" / "files"
    files.mkdir(parents=True)
    (files / "wandb-summary.json").write_text(json.dumps({"_step": 10, "train/loss": 1.25, "_wandb": {"runtime": 3}}))
    assert [(s.step, s.train_loss) for s in scan_run(tmp_path).checkpoints] == [(5, None), (10, 1.25)]


def test_a_cut_event_file_is_read_up_to_its_cut_and_a_damaged_one_is_refused(tmp_path):
    path = write_events(tmp_path, {step: {"loss": float(step)} for step in range(1, 6)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert [step for step, _ in read_event_files([path])] == [1, 2, 3, 4]
    path.write_bytes(struct.pack("<QL", 3, 0) + b"\x2a\xff\x01" + bytes(4))
    with pytest.raises(ScanError, match="is damaged: an event cannot be read"):
        read_event_files([path])


def test_wandbs_own_log_gives_losses_and_tokens_by_the_trainers_steps(checkpoint, tmp_path):
    write_run(tmp_path, checkpoint, "step-5", "step-10")
    rows = [
        (0, {"train/loss": 3.0, "train/global_step": 5, "tokens": 500, "note": "x" * 100_000}),
        (1, {"train/loss": 2.0, "train/global_step": 10, "tokens": 1000, "eval/loss": 2.5}),
    ]
    write_wandb(tmp_path / "wandb" / "offline-run-1" / "run-1.wandb", rows)
    found = [(s.step, s.tokens, s.train_loss, s.val_loss) for s in scan_run(tmp_path).checkpoints]
    assert found == [(5, 500, 3.0, None), (10, 1000, 2.0, 2.5)]


def test_a_log_of_wandb_that_is_cut_off_is_read_as_far_as_it_goes_and_a_damaged_one_refused(tmp_path):
    path = write_wandb(tmp_path / "run-1.wandb", [(step, {"loss": float(step)}) for step in range(5)])
    raw = path.read_bytes()
    path.write_bytes(raw[:-3])
    assert read_wandb_files([path]) == [(step, {"loss": float(step)}) for step in range(4)]
    path.write_bytes(raw[:11] + b"\xff\xff\xff" + raw[14:])
    with pytest.raises(ScanError, match="is damaged at byte 7"):
        read_wandb_files([path])
    path.write_bytes(b"PK" + raw)
    with pytest.raises(ScanError, match="does not begin as a log of W&B"):
        read_wandb_files([path])


def test_an_unfinished_step_of_nanotron_is_left_out(checkpoint, tmp_path):
    write_run(tmp_path, checkpoint, "10", "20")
    (tmp_path / "latest.txt").write_text("10")
    run = scan_run(tmp_path)
    assert [s.step for s in run.checkpoints] == [10]
    assert run.notes == (f"{tmp_path / '20'} is newer than latest.txt says: left out",)
