"""The callback beside a real, tiny run of transformers' Trainer: what it writes is what `scan` and `watch` read."""

import threading
import time

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from trajsoup.integrations import SoupCallback
from trajsoup.merge.watch import fingerprint, glance, look

STEPS, EVERY, BATCH, LENGTH, KEPT = 24, 2, 2, 8, 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Twelve checkpoints, of which the three best and the newest two stay; watched by the command as they appear."""
    folder = tmp_path_factory.mktemp("trainer") / "run"
    folder.mkdir()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=1))
    texts = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (16, LENGTH))]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        save_steps=EVERY,
        eval_steps=EVERY,
        logging_steps=1,
        eval_strategy="steps",
        save_only_model=True,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = SoupCallback(tokens_per_step=BATCH * LENGTH, keep=KEPT)
    trainer = Trainer(model=model, args=arguments, train_dataset=texts, eval_dataset=texts[:4], callbacks=[callback])
    seen, over = [], threading.Event()

    def watch():
        """What `trajsoup watch` does, in this process; it must neither miss nor disturb the run."""
        before = None
        while not over.is_set():
            if (now := fingerprint([folder])) != before and (study := look([folder])) is not None:
                seen.append(glance(study))
            before = now
            time.sleep(0.02)

    watching = threading.Thread(target=watch)
    watching.start()
    trainer.train()
    over.set()
    watching.join()
    return folder, callback, seen


def test_scan_finds_tokens_and_losses_of_every_kept_checkpoint(trained):
    folder, _, _ = trained
    (branch,) = look([folder]).branches
    for saved in branch.checkpoints:
        assert saved.tokens == saved.step * BATCH * LENGTH
        assert saved.train_loss > 0
        assert saved.val_loss > 0
    assert branch.checkpoints[-1].step == STEPS


def test_only_the_best_and_the_newest_stay(trained):
    folder, callback, _ = trained
    steps = {int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")}
    assert KEPT <= len(steps) <= KEPT + 2
    assert {STEPS, STEPS - EVERY} <= steps
    lines = [line for line in (folder / "metrics.jsonl").read_text().splitlines() if "val_loss" in line]
    assert len(lines) == STEPS // EVERY  # of those that were deleted too
    assert len(callback.losses) <= KEPT + 2


def test_the_run_was_watched_and_the_best_merge_of_it_is_told(trained):
    folder, _, seen = trained
    assert len(seen) > 1  # looks at a run that went on
    assert seen[0].runs[0].position < STEPS * BATCH * LENGTH
    found = glance(look([folder]))
    assert found.best.label == "best checkpoint"
    assert "2 of 3 lines are not scored" in found.words[1]
    assert "run: too few losses" in found.words[2]


def test_a_soup_of_nothing_is_refused():
    with pytest.raises(ValueError, match="keep is 0"):
        SoupCallback(keep=0)
