import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from tests.lm.stand_in import SEQUENCE, make_job
from trajsoup.core.recipe import Optimizer, Recipe
from trajsoup.core.schedule import Schedule, Shape, learning_rate
from trajsoup.errors import DivergedError, TrainError
from trajsoup.lm import train
from trajsoup.lm.branch_files import append_metrics
from trajsoup.lm.job import Precision
from trajsoup.lm.train import train_branch
from trajsoup.store.runs import scan_run


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights(folder, step):
    return load_file(folder / f"checkpoint-{step}" / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def metrics(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in rows]


def checkpoints(folder):
    return {s.tokens for s in scan_run(folder).checkpoints}


def train_and_stop(job, monkeypatch, *, after):
    """Train until the step after `after` would be logged."""

    def interrupt(folder, row):
        if row["step"] > after:
            raise KeyboardInterrupt
        append_metrics(folder, row)

    with monkeypatch.context() as patch:
        patch.setattr(train, "append_metrics", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_branch(job)


def test_a_branch_saves_weights_at_its_positions_and_one_state(tmp_path, fork_point):
    job = make_job(tmp_path / "EXP1", fork_point)
    trained = train_branch(job)
    assert trained.tokens == job.horizon
    assert checkpoints(job.folder) == {1024, 2048, 3072}
    assert [p.name for p in job.folder.glob("resume-state-*")] == ["resume-state-3072"]
    assert {p.name for p in (job.folder / "checkpoint-4").iterdir()} == {
        "model.safetensors", "config.json", "generation_config.json",
    }  # fmt: skip
    losses = [row["train_loss"] for row in metrics(job.folder)]
    assert losses[-1] < losses[0]


def test_a_bf16_model_with_tied_embeddings_keeps_them_tied_in_its_checkpoints(tmp_path):
    from tests.lm.tiny_models import llama_config, make_model

    fork = tmp_path / "fork"
    config = llama_config(257)
    config.tie_word_embeddings = True
    make_model(config).to(torch.bfloat16).save_pretrained(fork)
    job = make_job(tmp_path / "EXP1", fork, dtype="bfloat16", horizon=1024)
    train_branch(job)
    saved, start = weights(job.folder, 4), load_file(fork / "model.safetensors")
    assert saved.keys() == start.keys()  # no lm_head beside the embedding it is tied to
    assert {n: t.dtype for n, t in saved.items()} == {n: t.dtype for n, t in start.items()}


def test_a_first_checkpoint_that_is_not_of_the_fork_points_kind_ends_the_branch_at_once(tmp_path, fork_point):
    job = make_job(tmp_path / "EXP1", fork_point, dtype="bfloat16")
    with pytest.raises(TrainError, match=r"first checkpoint is not of the fork point's kind.* dtype F32 and BF16"):
        train_branch(job)
    assert checkpoints(job.folder) == {1024}


def test_positions_are_equal_for_every_batch_size(tmp_path, fork_point):
    for batch in (4, 8, 16):
        recipe = Recipe(peak_lr=1e-3, global_batch=batch)
        job = make_job(tmp_path / f"batch{batch}", fork_point, recipe=recipe)
        train_branch(job)
        assert checkpoints(job.folder) == {1024, 2048, 3072}


def test_a_checkpoint_has_the_fork_points_tensors_and_loads_as_a_model(tmp_path, fork_point):
    from trajsoup.lm.models import open_model
    from trajsoup.store.checkpoint import open_checkpoint, require_same

    job = make_job(tmp_path / "EXP1", fork_point, horizon=1024)
    train_branch(job)
    require_same(open_checkpoint(fork_point), open_checkpoint(job.folder / "checkpoint-4"))
    model = open_model(job.folder / "checkpoint-4")
    assert torch.isfinite(model(torch.arange(8)[None]).logits).all()


@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("stop_after", [2, 6, 8])
def test_an_interrupted_branch_resumes_bit_for_bit(tmp_path, fork_point, monkeypatch, optimizer, stop_after):
    recipe = Recipe(
        optimizer=optimizer, peak_lr=1e-3, global_batch=8, momentum=0.9, schedule=Schedule(shape=Shape.COSINE)
    )
    straight = make_job(tmp_path / "straight", fork_point, recipe=recipe)
    train_branch(straight)
    stopped = make_job(tmp_path / "stopped", fork_point, recipe=recipe)
    monkeypatch.setattr(train, "STATE_SECONDS", 0)
    train_and_stop(stopped, monkeypatch, after=stop_after)
    resumed = train_branch(stopped)
    assert resumed.trained_tokens == 3072 - stop_after // 4 * 1024
    for step in (4, 8, 12):
        assert same(weights(straight.folder, step), weights(stopped.folder, step))
    assert metrics(straight.folder) == metrics(stopped.folder)


def test_a_state_older_than_the_last_checkpoint_leads_to_the_same_bits(tmp_path, fork_point, monkeypatch):
    monkeypatch.setattr(train, "STATE_SECONDS", 3600)  # the first checkpoint gets a state, the second does not
    straight = make_job(tmp_path / "straight", fork_point)
    train_branch(straight)
    stopped = make_job(tmp_path / "stopped", fork_point)
    train_and_stop(stopped, monkeypatch, after=9)
    assert [p.name for p in stopped.folder.glob("resume-state-*")] == ["resume-state-1024"]
    assert checkpoints(stopped.folder) == {1024, 2048}
    assert train_branch(stopped).trained_tokens == 2048
    assert all(same(weights(straight.folder, step), weights(stopped.folder, step)) for step in (4, 8, 12))
    assert metrics(straight.folder) == metrics(stopped.folder)


def test_a_killed_process_resumes_bit_for_bit(tmp_path, fork_point):
    size = {"horizon": 90 * 256, "checkpoint_every": 30 * 256, "threads": 1}
    straight = make_job(tmp_path / "straight", fork_point, **size)
    train_branch(straight)
    killed = make_job(tmp_path / "killed", fork_point, **size).write()
    command = [sys.executable, "-m", "trajsoup.lm.branch_process", str(killed.folder / "branch.json")]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    path = killed.folder / "metrics.jsonl"
    while process.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") >= 35):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed.folder / "checkpoint-90").exists()
    resumed = train_branch(killed)
    assert 0 < resumed.trained_tokens < killed.horizon
    assert same(weights(straight.folder, 90), weights(killed.folder, 90))
    assert metrics(straight.folder) == metrics(killed.folder)


def test_the_seed_alone_changes_the_weights(tmp_path, fork_point):
    for seed in (1, 2):
        recipe = Recipe(peak_lr=1e-3, global_batch=8, seed=seed)
        train_branch(make_job(tmp_path / str(seed), fork_point, recipe=recipe, horizon=1024))
    assert not same(weights(tmp_path / "1", 4), weights(tmp_path / "2", 4))


def test_the_logged_rate_is_the_schedules(tmp_path, fork_point):
    recipe = Recipe(peak_lr=1e-3, global_batch=8, schedule=Schedule(shape=Shape.LINEAR, decay_to=1e-4))
    job = make_job(tmp_path / "EXP1", fork_point, recipe=recipe)
    train_branch(job)
    for row in metrics(job.folder):
        expected = learning_rate(
            recipe.schedule, tokens=row["tokens"], peak_lr=1e-3, warmup_tokens=31, horizon=job.horizon
        )
        assert row["learning_rate"] == expected


def test_gradients_of_several_passes_add_up_to_those_of_one(tmp_path, fork_point):
    for micro in (2, 8):
        job = make_job(
            tmp_path / str(micro),
            fork_point,
            micro_batch=micro,
            horizon=1024,
            recipe=Recipe(optimizer=Optimizer.ADAMW, peak_lr=1e-3, global_batch=8),
        )
        train_branch(job)
    whole, parts = weights(tmp_path / "8", 4), weights(tmp_path / "2", 4)
    for name in whole:
        torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-4)


def test_a_branch_that_diverges_stops_with_its_last_good_checkpoint(tmp_path, fork_point, monkeypatch):
    job = make_job(tmp_path / "EXP1", fork_point, recipe=Recipe(optimizer=Optimizer.ADAMW, global_batch=8))
    monkeypatch.setattr(train, "learning_rate", lambda *a, tokens, **k: 1e-3 if tokens <= 1024 else 1e38)
    with pytest.raises(DivergedError, match=r"'EXP1' diverged after .* its checkpoint at 1,024 tokens is kept"):
        train_branch(job)
    assert checkpoints(job.folder) == {1024}
    assert all(torch.isfinite(t).all() for t in weights(job.folder, 4).values())


@pytest.mark.parametrize("loss_is_nan", [True, False])
def test_a_nan_never_reaches_the_weights(tmp_path, fork_point, monkeypatch, loss_is_nan):
    stepped = []
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: stepped.append(self))
    if loss_is_nan:
        monkeypatch.setattr(train, "accumulate", lambda *a, **k: float("nan"))
    else:
        monkeypatch.setattr(train, "clip_gradients", lambda *a, **k: float("inf"))
    job = make_job(tmp_path / "EXP1", fork_point, recipe=Recipe(optimizer=Optimizer.ADAMW, global_batch=8))
    with pytest.raises(DivergedError, match="it has no checkpoint yet"):
        train_branch(job)
    assert not stepped


def test_a_bf16_fork_point_gets_bf16_checkpoints(tmp_path, fork_point):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(fork_point, dtype=torch.bfloat16).save_pretrained(tmp_path / "fork")
    job = make_job(tmp_path / "EXP1", tmp_path / "fork", dtype="bfloat16", horizon=1024)
    train_branch(job)
    tensors = weights(job.folder, 4)
    kept = {name for name, t in tensors.items() if t.dtype == torch.float32}
    assert kept == {"model.layers.1.mlp.gate.e_score_correction_bias"}


def test_tokenizer_files_travel_with_every_checkpoint(tmp_path, fork_point):
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    job = make_job(tmp_path / "EXP1", fork_point, tokenizer=tmp_path / "tokenizer", horizon=1024)
    train_branch(job)
    assert (job.folder / "checkpoint-4" / "tokenizer.json").read_text() == "{}"


def test_a_micro_batch_that_does_not_divide_is_refused(tmp_path, fork_point):
    with pytest.raises(TrainError, match="do not divide into passes of micro_batch 3"):
        train_branch(make_job(tmp_path / "EXP1", fork_point, micro_batch=3))


def test_checkpoints_without_a_state_are_not_trained_over(tmp_path, fork_point):
    job = make_job(tmp_path / "EXP1", fork_point, horizon=2048)
    train_branch(job)
    (state,) = job.folder.glob("resume-state-*")
    state.rename(tmp_path / "elsewhere")
    with pytest.raises(TrainError, match="no state to resume from"):
        train_branch(job)


def test_a_kill_between_the_first_checkpoint_and_its_state_costs_only_time(tmp_path, fork_point):
    straight = make_job(tmp_path / "straight", fork_point)
    train_branch(straight)
    killed = make_job(tmp_path / "killed", fork_point)
    shutil.copytree(straight.folder / "checkpoint-4", killed.folder / "checkpoint-4")
    train_branch(killed)
    for name in ("checkpoint-4", "checkpoint-12"):
        files = [job.folder / name / "model.safetensors" for job in (straight, killed)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_a_half_written_checkpoint_of_a_killed_branch_is_never_seen_and_is_made_again(tmp_path, fork_point):
    job = make_job(tmp_path / "EXP1", fork_point, horizon=1024)
    unfinished = job.folder / ".checkpoint-4.unfinished"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"half")
    train_branch(job)
    assert checkpoints(job.folder) == {1024}
    assert not unfinished.exists()


def test_a_full_sequence_is_one_row_of_the_batch(tmp_path, fork_point):
    job = make_job(tmp_path / "EXP1", fork_point)
    assert job.step_tokens == 8 * SEQUENCE
    assert dataclasses.replace(job, recipe=Recipe(global_batch=2)).step_tokens == 2 * SEQUENCE


def test_bf16_passes_train_fp32_weights(tmp_path, fork_point):
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    try:
        job = make_job(tmp_path / "EXP1", fork_point, horizon=1024, precision=Precision.BF16)
        train_branch(job)
    finally:
        AcceleratorState._reset_state(True)
    assert {t.dtype for t in weights(job.folder, 4).values()} == {torch.float32}
    assert metrics(job.folder)[-1]["train_loss"] < metrics(job.folder)[0]["train_loss"]
