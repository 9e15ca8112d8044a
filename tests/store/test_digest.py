import hashlib
import os
import threading

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.errors import CheckpointError
from trajsoup.store.digest import Algorithm, OrderedDigest, digest_file, sample_digest, sha256_file


def test_a_files_digest_is_that_of_its_bytes(tmp_path):
    data = os.urandom(100_000)
    (tmp_path / "x").write_bytes(data)
    assert sha256_file(tmp_path / "x") == hashlib.sha256(data).hexdigest()
    assert digest_file(tmp_path / "x", Algorithm.BLAKE3) == blake3(data).hexdigest()


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20), st.integers(1, 6), st.binary(max_size=9))
def test_blocks_from_several_threads_hash_as_one_file(data, lengths, workers, lead):
    digest, blocks, position = OrderedDigest(Algorithm.SHA256, start=lead), [], 0
    for length in [*lengths, len(data)]:
        if part := data[position : position + length]:
            blocks.append((len(lead) + position, part))
            position += len(part)
    queue, lock = iter(blocks), threading.Lock()

    def work():
        while True:
            with lock:
                block = next(queue, None)
            if block is None:
                return
            digest.update(block[0], memoryview(block[1]))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert digest.hexdigest() == hashlib.sha256(lead + data).hexdigest()


def test_a_block_that_comes_early_waits_for_its_turn():
    digest = OrderedDigest(Algorithm.SHA256)
    early = threading.Thread(target=digest.update, args=(3, memoryview(b"def")), daemon=True)
    early.start()
    assert digest.hexdigest() == hashlib.sha256().hexdigest()
    digest.update(0, memoryview(b"abc"))
    early.join(timeout=60)
    assert not early.is_alive()
    assert digest.hexdigest() == hashlib.sha256(b"abcdef").hexdigest()


def test_cancelling_frees_those_who_wait_for_a_block_that_never_comes():
    digest = OrderedDigest(Algorithm.SHA256)
    waiting = [threading.Thread(target=digest.update, args=(i, memoryview(b"x")), daemon=True) for i in (5, 9)]
    for thread in waiting:
        thread.start()
    digest.cancel()
    for thread in waiting:
        thread.join(timeout=60)
        assert not thread.is_alive()
    digest.update(7, memoryview(b"x"))  # late comers do not wait either


def test_a_read_that_fails_names_the_file(tmp_path, monkeypatch):
    def fail(*args: object) -> None:
        raise OSError(5, "Input/output error")

    (tmp_path / "x").write_bytes(b"abc")
    monkeypatch.setattr(hashlib, "file_digest", fail)
    with pytest.raises(CheckpointError, match=r"reading .*/x failed: Input/output error"):
        sha256_file(tmp_path / "x")
    with pytest.raises(CheckpointError, match=r"reading .*/none failed: No such file"):
        sample_digest(tmp_path / "none")
