"""Logs of a Trainer that repeat each other: every entry once, every file read once, whatever is deleted or written again."""

import json

import pytest

from trajsoup.errors import ScanError
from trajsoup.store import trainer_states
from trajsoup.store.trainer_states import TrainerStates


def save(run, step, *, losses):
    folder = run / f"checkpoint-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    history = [{"step": s, "eval_loss": loss} for s, loss in losses.items()]
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"global_step": step, "num_input_tokens_seen": step * 10, "log_history": history}))
    return path


def said(points):
    return {p.step: p.val_loss for p in points if p.val_loss is not None}


def test_a_look_reads_only_what_is_new_and_says_what_a_first_look_would(tmp_path, monkeypatch):
    read, own = [], trainer_states.read_trainer_state
    monkeypatch.setattr(
        trainer_states, "read_trainer_state", lambda path, known: read.append(path) or own(path, known=known)
    )
    states, files, losses = TrainerStates(), [], {}
    for step in (2, 4, 6, 8):
        losses[step] = 3 - step / 10
        files.append(save(tmp_path, step, losses=losses))
        found = states.points(files, run=tmp_path)
        assert read == files
        assert found == TrainerStates().points(files, run=tmp_path)
        assert said(found) == losses
        assert {p.step: p.tokens for p in found if p.tokens} == {s: s * 10 for s in losses}
        del read[len(files) :]
    again = states.points(files[1:], run=tmp_path)  # the oldest was deleted
    assert read == [*files, *files[1:]]
    assert again == TrainerStates().points(files[1:], run=tmp_path)


def test_a_file_that_is_written_again_or_cannot_be_read_yet_is_read_again(tmp_path):
    states = TrainerStates()
    files = [save(tmp_path, 2, losses={2: 1.0}), save(tmp_path, 4, losses={2: 1.0, 4: 0.5})]
    states.points(files, run=tmp_path)
    whole = files[1].read_text()
    files[1].write_text(whole[:20])
    for _ in range(2):
        with pytest.raises(ScanError):
            states.points(files, run=tmp_path)
    files[0].write_text(files[0].read_text().replace("1.0", "1.25"))
    files[1].write_text(whole)
    points = states.points(files, run=tmp_path)
    assert [p.val_loss for p in points if p.step == 2 and p.val_loss] == [1.25, 1.0]
    assert said(points) == {2: 1.0, 4: 0.5}
