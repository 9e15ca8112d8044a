import os

import pytest

from trajsoup.errors import CheckpointError
from trajsoup.store.source import PAGE, DecodedSource, Source, aligned_buffer, is_warm
from trajsoup.store.stored import Box

SIZE = 5 * PAGE + 123


@pytest.fixture
def content(tmp_path):
    data = os.urandom(SIZE)
    (tmp_path / "file").write_bytes(data)
    return tmp_path / "file", data


def read(source: Source, offset: int, nbytes: int, item_bytes: int = 1) -> tuple[int, bytes]:
    buffer = aligned_buffer(SIZE // PAGE * PAGE + 3 * PAGE)
    start = source.read(buffer, offset=offset, nbytes=nbytes, item_bytes=item_bytes)
    return start, bytes(buffer[start : start + nbytes])


OFFSETS = [0, 1, 2, 7, 8, 511, 512, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 8, 3 * PAGE + 100, SIZE - 9]
LENGTHS = [1, 8, 9, 512, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE + 17]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8])
def test_every_offset_and_length_gives_the_bytes_of_the_file_aligned_to_items(content, direct, item_bytes):
    path, data = content
    with Source(path, direct=direct) as source:
        for offset in OFFSETS:
            for nbytes in [*LENGTHS, SIZE - offset]:
                if offset + nbytes <= SIZE:
                    start, found = read(source, offset, nbytes, item_bytes)
                    assert found == data[offset : offset + nbytes]
                    assert start % item_bytes == 0


def test_a_file_that_became_shorter_is_an_error_not_stale_bytes(content):
    path, _ = content
    for direct in (False, True):
        with Source(path, direct=direct) as source:
            os.truncate(path, PAGE + 5)
            with pytest.raises(CheckpointError, match=r"file became shorter while it was read"):
                read(source, 0, SIZE)
            assert read(source, 3, PAGE)[1] == path.read_bytes()[3 : PAGE + 3]
        os.truncate(path, SIZE)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot open .*absent: No such file"):
        read(Source(tmp_path / "absent"), 0, 8)


def test_a_folder_cannot_be_read(tmp_path):
    with Source(tmp_path) as source, pytest.raises(CheckpointError, match=r"cannot open .*: Is a directory"):
        read(source, 0, 8)


def test_where_direct_reads_are_refused_buffered_ones_serve(content, monkeypatch):
    path, data = content
    monkeypatch.setattr(os, "O_DIRECT", os.O_DIRECTORY, raising=False)  # what opening a file with it answers: an error
    with Source(path, direct=True) as source:
        assert read(source, 5, 1000)[1] == data[5:1005]


def test_a_closed_source_leaves_no_descriptor_open(content):
    path, _ = content
    before = len(os.listdir("/proc/self/fd"))
    for direct in (False, True):
        with Source(path, direct=direct):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_just_written_is_warm(content):
    path, _ = content
    path.read_bytes()
    assert is_warm([path])


class Doubling:
    """Each byte was stored once instead of twice."""

    def __init__(self):
        self.calls = 0

    def decode(self, stored, *, nbytes):
        self.calls += 1
        if 0 in stored:
            raise ValueError("a zero")
        return bytes(byte for byte in stored for _ in range(2))


def decoded(path, codec, *, shape=(4,), nbytes=2, wanted=4):
    return DecodedSource(Box(0, 1, nbytes, (0,), shape, codec), Source(path), dtype="U8", wanted_bytes=wanted)


def test_an_encoded_box_is_decoded_once_and_let_go_after_its_last_byte(tmp_path):
    (tmp_path / "x").write_bytes(b"?ab?")
    with decoded(tmp_path / "x", codec := Doubling()) as source:
        assert [read(source, offset, 1) for offset in (3, 0, 2)] == [(0, b"b"), (0, b"a"), (0, b"b")]
        assert (codec.calls, bytes(source._held)) == (1, b"aabb")
        assert read(source, 1, 1) == (0, b"a")
        assert (codec.calls, source._held) == (1, None)


def test_a_box_that_cannot_be_decoded_is_named_with_its_file_and_place(tmp_path):
    (tmp_path / "x").write_bytes(b"?a\0?")
    message = r"x is damaged: the 2 bytes at 1 cannot be decoded \(a zero\). Copy or save it again"
    with decoded(tmp_path / "x", Doubling()) as source, pytest.raises(CheckpointError, match=message):
        read(source, 0, 1)


def test_a_box_that_decodes_to_another_size_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"?ab?")
    message = r"the 2 bytes at 1 decode to 4 bytes, a box of \[5\] has 5"
    with decoded(tmp_path / "x", Doubling(), shape=(5,)) as source, pytest.raises(CheckpointError, match=message):
        read(source, 0, 1)
