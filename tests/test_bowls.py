import numpy as np
import pytest
import safetensors.numpy

from tests.bowls import FLOOR, make_bowl, read_point, write_point, write_run
from tests.runs import fingerprint
from trajsoup.store.runs import scan_run


def test_the_loss_is_lowest_at_the_minimum_and_known_exactly_elsewhere():
    bowl = make_bowl(3)
    assert bowl.loss(bowl.minimum) == FLOOR
    step = np.zeros_like(bowl.minimum)
    step[5] = 0.1
    assert bowl.loss(bowl.minimum + step) == pytest.approx(FLOOR + 0.5 * bowl.curvature[5] * 0.01)


def test_a_run_is_scanned_with_the_scores_its_checkpoints_have(tmp_path):
    bowl = make_bowl()
    write_run(tmp_path / "run", bowl, seed=1, learning_rate=0.05, steps=100, every=50)
    run = scan_run(tmp_path / "run")
    assert [(s.step, s.tokens) for s in run.checkpoints] == [(50, 50_000), (100, 100_000)]
    for saved in run.checkpoints:
        point = read_point(safetensors.numpy.load_file(saved.path / "model.safetensors"))
        assert bowl.loss(point) == pytest.approx(saved.val_loss, rel=1e-6)
        assert saved.train_loss > FLOOR


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_run(tmp_path / name, make_bowl(), seed=seed, learning_rate=0.05, steps=50)
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b") != fingerprint(tmp_path / "c")


def test_a_point_survives_its_checkpoint(tmp_path):
    start = make_bowl().start
    write_point(tmp_path / "p", start)
    assert np.array_equal(
        read_point(safetensors.numpy.load_file(tmp_path / "p" / "model.safetensors")), start.astype(np.float32)
    )
