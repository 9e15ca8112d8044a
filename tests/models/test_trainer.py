"""Runs of the real Hugging Face Trainer: what scan finds is what trainer_state.json says, and their soup works."""

import json
import math

import pytest
import torch
from transformers import Trainer, TrainingArguments

from tests.command import succeeds
from tests.models.tiny import load, model, save
from tests.runs import equal, fingerprint, mean
from tests.runs import load as tensors_of
from trajsoup.merge.branches import scan_branches

STEPS, EVERY, BATCH, LENGTH = 6, 2, 4, 16


def texts(count, *, seed):
    chance = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 64, (count, LENGTH), generator=chance)
    return [{"input_ids": row, "labels": row, "attention_mask": torch.ones_like(row)} for row in rows]


def train(start, out, *, seed, **options):
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=STEPS,
        save_steps=EVERY,
        eval_steps=EVERY,
        eval_strategy="steps",
        logging_steps=1,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        seed=seed,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    trainer = Trainer(model=load(start), args=arguments, train_dataset=texts(64, seed=5), eval_dataset=texts(8, seed=6))
    trainer.train()
    trainer.save_model()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    save(model("llama"), folder / "base")
    train(folder / "base", folder / "EXP1", seed=1, include_num_input_tokens_seen="all")
    train(folder / "base", folder / "EXP2", seed=2, include_num_input_tokens_seen="all")
    train(folder / "base", folder / "uncounted", seed=3)
    before = fingerprint(folder)
    yield folder
    assert fingerprint(folder) == before


def history(run):
    return json.loads((run / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"]


def test_steps_tokens_and_losses_are_those_of_the_trainer(trained):
    study = scan_branches([trained / "EXP1", trained / "EXP2"])
    for branch in study.branches:
        log = history(branch.path)
        losses = {e["step"]: e["loss"] for e in log if "loss" in e}
        evaluated = {e["step"]: e["eval_loss"] for e in log if "eval_loss" in e}
        assert [s.step for s in branch.checkpoints] == [2, 4, 6]
        for saved in branch.checkpoints:
            state = json.loads((saved.path / "trainer_state.json").read_text())
            assert saved.step == state["global_step"]
            assert saved.tokens == state["num_input_tokens_seen"] == saved.step * BATCH * LENGTH
            assert saved.val_loss == evaluated[saved.step]
            window = [losses[step] for step in range(saved.step - EVERY + 1, saved.step + 1)]
            assert saved.train_loss == math.fsum(window) / EVERY
    assert study.unit == "tokens"


def test_the_model_that_the_trainer_saves_last_is_not_a_candidate(trained):
    study = scan_branches([trained / "EXP1"])
    assert (trained / "EXP1" / "model.safetensors").is_file()
    assert len(study.branches[0].checkpoints) == 3
    assert study.notes == (f"{trained / 'EXP1'} itself holds a model too; only its checkpoint folders are used",)


def test_tokens_that_the_trainer_did_not_count_are_missed_and_can_be_supplied(trained):
    study = scan_branches([trained / "uncounted"])
    assert [s.tokens for s in study.branches[0].checkpoints] == [None] * 3
    assert [s.train_loss is None for s in study.branches[0].checkpoints] == [False] * 3
    assert any("include_num_input_tokens_seen" in note for note in study.hints)
    supplied = scan_branches([trained / "uncounted"], tokens_per_step=BATCH * LENGTH)
    assert [s.tokens for s in supplied.branches[0].checkpoints] == [128, 256, 384]


def test_two_trainer_runs_are_merged_with_one_command(trained, tmp_path):
    done = succeeds("merge", trained / "EXP1", trained / "EXP2", "--k", 2, "-o", tmp_path / "soup", "--json")
    best = {}
    for name in ("EXP1", "EXP2"):
        evaluated = sorted((e["eval_loss"], e["step"]) for e in history(trained / name) if "eval_loss" in e)
        best |= {trained / name / f"checkpoint-{step}": loss for loss, step in evaluated[:2]}
    assert {i["path"]: i["val_loss"] for i in done.json["ingredients"]} == {str(p): loss for p, loss in best.items()}
    assert [v["admitted"] for v in done.json["screen"]] == [True, True]
    assert equal(tensors_of(tmp_path / "soup"), mean(*best))
    names = {p.name for p in (tmp_path / "soup").iterdir()}
    assert names == {"model.safetensors", "config.json", "generation_config.json", "README.md", "soup.json"}
    with torch.no_grad():
        assert torch.isfinite(load(tmp_path / "soup")(torch.tensor([[1, 2, 3]])).logits).all()
    succeeds("verify", tmp_path / "soup", "--full")


def test_the_doctor_finds_the_runs_good(trained):
    told = succeeds("doctor", trained / "EXP1", trained / "EXP2", "--fork-point", trained / "base", "--json").json
    assert told["healthy"]
    assert [b["outlook"] for b in told["branches"]] == ["averages well"] * 2
    assert all(b["closeness"]["cosine"] > 0.9 for b in told["branches"])
