"""What was hashed once is not hashed again, unless it may have changed."""

import os

import pytest

from trajsoup.store.digest import Algorithm, digest_file
from trajsoup.store.known_digests import KnownDigests
from trajsoup.store.unchanged import state_of

LONG_AGO = 1_600_000_000


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A file that has not been touched for a while; its time of change, which cannot be set, is passed over."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    monkeypatch.setattr("trajsoup.store.known_digests.time.time", lambda: os.stat(path).st_ctime + 60)
    return path


def learnt(cache, path, algorithm=Algorithm.BLAKE3):
    known = KnownDigests(cache)
    known.learn([path], [state_of(path)], [digest_file(path, algorithm)], algorithm)
    known.save()


def test_the_digest_of_an_untouched_file_is_remembered_under_its_algorithm(tmp_path, weights):
    learnt(tmp_path / "cache" / "digests.json", weights)
    again = KnownDigests(tmp_path / "cache" / "digests.json")
    assert again.of([weights], Algorithm.BLAKE3) == (digest_file(weights, Algorithm.BLAKE3),)
    assert again.of([weights], Algorithm.SHA256) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"WEIGHTS"),
        lambda path: os.utime(path, (LONG_AGO, LONG_AGO)),
        lambda path: (path.rename(path.with_name("old")), path.write_bytes(b"weights")),
    ],
    ids=["content", "time", "inode"],
)
def test_a_file_that_changed_in_any_way_is_not_known(tmp_path, weights, change):
    learnt(tmp_path / "digests.json", weights)
    change(weights)
    assert KnownDigests(tmp_path / "digests.json").of([weights], Algorithm.BLAKE3) is None


def test_nothing_is_learnt_of_a_file_that_changed_a_moment_ago(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"fresh")
    learnt(tmp_path / "digests.json", path)
    assert KnownDigests(tmp_path / "digests.json").of([path], Algorithm.BLAKE3) is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"blake3 x": 1}', b"\xff"])
def test_a_damaged_memory_is_an_empty_one(tmp_path, weights, content):
    cache = tmp_path / "digests.json"
    cache.write_bytes(content)
    assert KnownDigests(cache).of([weights], Algorithm.BLAKE3) is None
    learnt(cache, weights)
    assert KnownDigests(cache).of([weights], Algorithm.BLAKE3) is not None


def test_a_cache_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path, weights):
    (tmp_path / "file").write_text("no folder")
    learnt(tmp_path / "file" / "digests.json", weights)


def test_what_is_asked_for_is_hashed_once_and_remembered(tmp_path, weights, monkeypatch):
    known = KnownDigests(tmp_path / "digests.json")
    digest = known.file(weights, Algorithm.SHA256)
    assert digest == digest_file(weights, Algorithm.SHA256)
    known.save()
    monkeypatch.setattr("trajsoup.store.known_digests.digest_file", lambda path, algorithm: "hashed again")
    again = KnownDigests(tmp_path / "digests.json")
    assert again.file(weights, Algorithm.SHA256) == digest
    assert again.file(weights, Algorithm.BLAKE3) == "hashed again"
    weights.write_bytes(b"others!")
    assert again.file(weights, Algorithm.SHA256) == "hashed again"
