"""Nothing but regular files is read: a pipe is not waited for, and no device fills the memory."""

import os
from pathlib import Path

import pytest

from tests.plain_checkpoints import write_plain
from trajsoup.errors import CheckpointError, ScanError, StudyError
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.json_file import load_json
from trajsoup.store.lock import owner_of
from trajsoup.store.metrics import read_metrics
from trajsoup.store.regular import copy_small, open_regular, opened, read_small, read_words
from trajsoup.store.source import Source, aligned_buffer
from trajsoup.store.yaml_file import load_yaml
from trajsoup.study.train.outcomes import OUTCOME, end_of

pytestmark = pytest.mark.timeout(60)  # what waits for a pipe waits for ever


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("read", [open_regular, opened, read_small, read_words])
def test_a_pipe_is_refused_and_not_waited_for(pipe, read):
    with pytest.raises(OSError, match="only regular files are read"):
        read(pipe)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_refused(device):
    with pytest.raises(OSError, match=r"only regular files are read|No such device"):
        read_small(Path(device))


def test_a_file_that_grows_or_hides_its_size_is_read_up_to_the_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert read_small(tmp_path / "file", limit=100) == b"x" * 100
    with pytest.raises(OSError, match="more than 99 bytes"):
        read_small(tmp_path / "file", limit=99)
    if Path("/proc/self/environ").exists():  # says that it has 0 bytes
        with pytest.raises(OSError, match="more than 3 bytes"):
            read_small(Path("/proc/self/environ"), limit=3)


def test_a_copy_takes_no_other_file_s_place(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    copy_small(tmp_path / "file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"x"
    with pytest.raises(FileExistsError):
        copy_small(tmp_path / "file", tmp_path / "copy")


def test_settings_records_and_locks_that_are_pipes_are_refused(pipe, tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot read .*pipe: it is a pipe"):
        load_json(pipe)
    with pytest.raises(StudyError, match=r"cannot read .*pipe: it is a pipe"):
        load_yaml(pipe)
    with pytest.raises(StudyError, match=r"cannot read /dev/zero: it is a pipe, a socket or a device"):
        load_yaml(Path("/dev/zero"))
    assert owner_of(pipe) is None
    os.mkfifo(tmp_path / OUTCOME)
    assert end_of(tmp_path) is None


def test_weights_that_are_pipes_are_refused(tmp_path):
    folder = write_plain(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="it is a pipe"):
        open_checkpoint(folder)
    with pytest.raises(CheckpointError, match="it is a pipe"):
        Source(folder / "model.safetensors").read(aligned_buffer(1 << 14), offset=0, nbytes=8)


def test_a_log_that_is_a_link_to_a_device_is_no_log(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/zero")
    assert read_metrics(tmp_path) == []  # is_file() says no
    (tmp_path / "metrics.csv").write_bytes(b"\xff")
    with pytest.raises(ScanError, match="not UTF-8"):
        read_metrics(tmp_path)
