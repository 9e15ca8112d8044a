import numpy as np
import pytest

from tests.checkpoints import write_checkpoint
from trajsoup.errors import OutputError
from trajsoup.store.pruning import prune


def test_a_pruned_checkpoint_is_gone_whole_and_its_bytes_are_counted(tmp_path):
    kept = write_checkpoint(tmp_path / "run" / "checkpoint-1", {"w": np.zeros(10, np.float32)})
    gone = write_checkpoint(tmp_path / "run" / "checkpoint-2", {"w": np.zeros(1000, np.float32)})
    assert prune([gone], below=tmp_path / "run") > 4000
    assert list((tmp_path / "run").iterdir()) == [kept]


def test_a_folder_outside_the_study_is_never_pruned(tmp_path):
    outside = write_checkpoint(tmp_path / "other" / "checkpoint-1", {"w": np.zeros(1, np.float32)})
    (tmp_path / "run").mkdir()
    with pytest.raises(OutputError, match="left as it is"):
        prune([outside], below=tmp_path / "run")
    assert outside.is_dir()


def test_a_folder_without_weights_is_never_pruned(tmp_path):
    (tmp_path / "run" / "notes").mkdir(parents=True)
    with pytest.raises(OutputError, match="is not a checkpoint folder"):
        prune([tmp_path / "run" / "notes"], below=tmp_path / "run")
