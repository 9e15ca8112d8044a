import hashlib
import os

import numpy as np
import pytest
import safetensors
from safetensors import safe_open

from tests.checkpoints import bf16, stored_bytes, write_checkpoint
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import FileSink, MemorySink
from trajsoup.errors import CheckpointError
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.formats.safetensors import read_header
from trajsoup.store.source import aligned_buffer

TENSORS = {
    "w": bf16(np.arange(5000)),
    "h": np.float16([[1.5], [2.5]]),
    "s": np.float32(7),
    "d": np.float64([1, 2]),
    "ids": np.arange(3),
    "small": np.int8([-1, 2]),
    "flag": np.array([True, False]),
    "none": np.zeros((0, 4), np.float32),
}


@pytest.fixture(params=[1, 3], ids=["single", "sharded"])
def source(request, tmp_path):
    return open_checkpoint(write_checkpoint(tmp_path / "in", TENSORS, shards=request.param))


def pour(checkpoint, layout, sink, *, step: int = 777, shift: int = 0) -> None:
    """Hand every byte of the checkpoint's tensors to the sink, in file order."""
    for number, file in enumerate(layout.files):
        contents = b"".join(stored_bytes(checkpoint, name) for name in file.header.tensors)
        for start in range(0, len(contents), step):
            part = contents[start : start + step]
            buffer = aligned_buffer(step + shift)
            buffer[shift : shift + len(part)] = part
            sink.write(number, file.header.data_offset + start, buffer[shift : shift + len(part)])


def test_a_written_file_is_the_same_tensors_and_its_digest_that_of_its_bytes(source, tmp_path):
    layout = make_layout(source)
    out = tmp_path / "out"
    out.mkdir()
    with FileSink(out, layout) as sink:
        pour(source, layout, sink)
        digests = sink.finish()
    assert digests == {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in os.listdir(out)}
    assert list(digests) == [file.name for file in layout.files]
    written = open_checkpoint(out)
    for name, t in written.tensors.items():
        assert t[:2] == source.tensors[name][:2]  # dtype and shape
        assert stored_bytes(written, name) == stored_bytes(source, name)


@pytest.mark.parametrize("step", [4096, 8192])
@pytest.mark.parametrize("shift", [0, 1, 2, 512])
def test_blocks_of_whole_pages_are_written_wherever_they_lie_in_memory(source, tmp_path, step, shift):
    layout = make_layout(source)
    files = {}
    for name, options in {"pages": {"step": step, "shift": shift}, "pieces": {"step": 999}}.items():
        (tmp_path / name).mkdir()
        with FileSink(tmp_path / name, layout, digest=False) as sink:
            pour(source, layout, sink, **options)
            assert sink.finish() == {}
        files[name] = [(tmp_path / name / file.name).read_bytes() for file in layout.files]
    assert files["pages"] == files["pieces"]


def test_no_reader_takes_a_file_for_whole_until_it_is_finished(source, tmp_path):
    layout = make_layout(source)
    with FileSink(tmp_path, layout) as sink:
        pour(source, layout, sink)
        for file in layout.files:
            path = tmp_path / file.name
            assert path.stat().st_size == file.header.file_bytes  # the space is taken from the start
            with pytest.raises(CheckpointError, match="damaged"):
                read_header(path)
            with pytest.raises(safetensors.SafetensorError):
                safe_open(path, "np").__enter__()
        sink.finish()
    for file in layout.files:
        assert read_header(tmp_path / file.name).tensors == file.header.tensors


def test_an_existing_file_is_not_overwritten(source, tmp_path):
    layout = make_layout(source)
    (tmp_path / layout.files[0].name).write_text("precious")
    with pytest.raises(FileExistsError):
        FileSink(tmp_path, layout)
    assert (tmp_path / layout.files[0].name).read_text() == "precious"


def test_a_closed_sink_leaves_no_descriptor_open(source, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with FileSink(tmp_path, make_layout(source)):
        assert len(os.listdir("/proc/self/fd")) > before
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_holds_the_same_tensors_as_arrays(source):
    layout = make_layout(source)
    sink = MemorySink(layout)
    pour(source, layout, sink)
    found = sink.tensors()
    assert set(found) == set(TENSORS)
    for name, array in found.items():
        expected = TENSORS[name]
        if name == "w":
            assert array.dtype == np.uint16
            np.testing.assert_array_equal((array.astype(np.uint32) << 16).view(np.float32), expected.float().numpy())
        else:
            assert array.dtype == np.asarray(expected).dtype
            np.testing.assert_array_equal(array, expected)
