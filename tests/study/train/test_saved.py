"""What the branches of a study keep, beside their checkpoints."""

from trajsoup.study.train.saved import resumable_bytes


def test_states_to_train_on_from_are_counted_and_checkpoints_are_not(tmp_path):
    for name, size in (("resume-state-512/process-0.pt", 7), ("resume-state-512/model.pt", 3), ("checkpoint-1/x", 100)):
        path = tmp_path / "branches" / "EXP1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    assert resumable_bytes(tmp_path) == 10
    assert resumable_bytes(tmp_path / "not-trained") == 0
