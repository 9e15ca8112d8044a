import json
import pickle
import socket

import numpy as np
import pytest

from tests.checkpoints import trajectory, write_checkpoint
from trajsoup.errors import CheckpointError, StoreError
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.digest import sample_digest, sha256_file
from trajsoup.store.formats.safetensors import FIRST_BYTES
from trajsoup.store.remote import RemotePath, absolute, place
from trajsoup.store.retry import ShortAnswerError, retrying
from trajsoup.store.runs import scan_run
from trajsoup.store.source import open_source

fsspec = pytest.importorskip("fsspec", reason="needs the extra [cloud]")


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


def copied(folder, store, where):
    for path in folder.rglob("*"):
        if path.is_file():
            store.pipe_file(f"/{where}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return place(f"memory://{where}")


def test_a_path_is_local_and_a_url_is_not(tmp_path):
    assert place(str(tmp_path)) == tmp_path
    assert place(f"file://{tmp_path}") == tmp_path
    assert place("s3://bucket/run/") == RemotePath("s3://bucket/run")
    assert place("lr=0.1").name == "lr=0.1"


def test_a_url_behaves_like_a_path():
    path = place("s3://bucket/run/checkpoint-5/model.safetensors")
    assert (path.name, path.stem, path.suffix) == ("model.safetensors", "model", ".safetensors")
    assert path.parent / "config.json" == place("s3://bucket/run/checkpoint-5/config.json")
    assert (path.parent / ".." / "x").resolve() == place("s3://bucket/run/x")
    assert absolute("s3://bucket/run/./x") == "s3://bucket/run/x"
    assert place("s3://bucket/run") in path.parents


def test_a_url_survives_the_way_to_another_process(memory):
    path = place("memory://a/b")
    assert not path.exists()  # the connection is open now
    assert pickle.loads(pickle.dumps(path)) == path


def test_a_checkpoint_in_a_store_opens_like_a_local_one(tmp_path, memory):
    tensors = {"a": np.arange(5, dtype=np.float32), "b": np.ones((3, 2), np.float32)}
    files = {"tokenizer.json": "{}", "code/model.py": "pass"}
    local = open_checkpoint(write_checkpoint(tmp_path / "c", tensors, shards=2, config={"x": 1}, files=files))
    remote = open_checkpoint(copied(tmp_path / "c", memory, "runs/c"))
    assert remote.tensors == local.tensors
    assert remote.config == local.config
    assert remote.side_files() == local.side_files()
    assert [sha256_file(f) for f in remote.files] == [sha256_file(f) for f in local.files]
    assert [sample_digest(f) for f in remote.files] == [sample_digest(f) for f in local.files]


def test_a_header_longer_than_the_first_request_is_read_whole(tmp_path, memory):
    tensors = {f"layer.{i:05d}.{'x' * 60}": np.zeros(1, np.float32) for i in range(2500)}
    folder = write_checkpoint(tmp_path / "c", tensors)
    remote = open_checkpoint(copied(folder, memory, "c"))
    assert min(t.boxes[0].offset for t in remote.tensors.values()) > FIRST_BYTES
    assert list(remote.tensors) == list(open_checkpoint(folder).tensors)


def test_a_run_in_a_store_is_scanned_like_a_local_one(tmp_path, memory):
    for step in (10, 20):
        write_checkpoint(tmp_path / "run" / f"checkpoint-{step}", {"w": np.zeros(2, np.float32)})
    lines = [json.dumps({"step": s, "tokens": 10 * s, "val_loss": 3 - s / 100}) for s in (10, 20)]
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(lines))
    remote = scan_run(copied(tmp_path / "run", memory, "run"))
    local = scan_run(tmp_path / "run")
    assert [(s.path.name, s.step, s.tokens, s.val_loss) for s in remote.checkpoints] == [
        (s.path.name, s.step, s.tokens, s.val_loss) for s in local.checkpoints
    ]


def test_a_folder_with_some_of_its_shards_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "c", {n: np.zeros(2, np.float32) for n in "abc"}, shards=3)
    (folder / "model.safetensors.index.json").unlink()
    open_checkpoint(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match="2 of 3 shards"):
        open_checkpoint(folder)


def test_a_missing_checkpoint_in_a_store_says_so(memory):
    with pytest.raises(CheckpointError, match="no checkpoint at memory://nothing"):
        open_checkpoint("memory://nothing")


def test_an_unknown_kind_of_url_says_which_are_read():
    with pytest.raises(StoreError, match=r"'nosuch://x' is no store that is read here \(.*s3"):
        open_checkpoint("nosuch://x")


def test_an_object_removed_while_it_is_read_is_named(tmp_path, memory):
    found = trajectory(tmp_path, count=1)
    remote = open_checkpoint(copied(tmp_path / "c00", memory, "c"))
    memory.rm("/c/model.safetensors")
    with open_source(remote.files[0]) as source, pytest.raises(CheckpointError, match="disappeared while it was read"):
        source.read(memoryview(bytearray(10)), offset=0, nbytes=10)
    assert found


def stumbling(*errors):
    """An action that raises these, one after another, and then succeeds."""
    left = list(errors)

    def action():
        if left:
            raise left.pop(0)
        return "done"

    return action


def test_a_stumble_is_tried_again_with_growing_waits():
    waits = []
    errors = [TimeoutError("slow"), OSError(5, "500"), ShortAnswerError("short")]
    assert retrying(stumbling(*errors), what="reading x", sleep=waits.append) == "done"
    assert len(waits) == 3
    assert waits[0] < 0.1 * 1.5 < 0.2 + waits[2]


def test_after_the_last_attempt_the_error_names_the_cause():
    with pytest.raises(StoreError, match=r"reading x failed 3 times.*ShortAnswerError: 5 of 9"):
        retrying(stumbling(*[ShortAnswerError("5 of 9")] * 3), what="reading x", attempts=3, sleep=lambda s: None)


def test_what_can_never_succeed_is_not_tried_again():
    with pytest.raises(FileNotFoundError):
        retrying(stumbling(FileNotFoundError("gone")), what="reading x", sleep=pytest.fail)


def test_no_new_attempt_is_made_when_patience_ends():
    times = iter([0.0, 100.0, 200.0])
    with pytest.raises(StoreError, match="reading x failed 2 times"):
        retrying(stumbling(*[OSError("x")] * 9), what="reading x", sleep=lambda s: None, clock=lambda: next(times))


@pytest.mark.parametrize("url", ["ftp://me:secret@host/run", "https://host/run?X-Amz-Signature=secret"])
def test_a_url_that_holds_a_secret_is_refused_without_repeating_it(url):
    with pytest.raises(StoreError, match="give credentials as the store's own tools read them") as caught:
        place(url)
    assert "secret" not in str(caught.value)


def test_a_store_whose_host_has_no_address_is_said_at_once(monkeypatch):
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    for name in ("STORAGE_EMULATOR_HOST", "HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(StoreError, match=r"cannot reach gs://bucket/run: storage.googleapis.com is not found"):
        scan_run("gs://bucket/run")
