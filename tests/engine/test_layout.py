"""Every byte of the output is made once, from the right bytes of every ingredient."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from trajsoup.engine.layout import blocks, make_layout, spans
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.formats.safetensors import Entry, Safetensors, build_header
from trajsoup.store.stored import FLOATS, ITEM_BYTES, Box, Tensor

DTYPES = ["BF16", "F16", "F32", "F64", "I64", "U8", "BOOL"]
tensor_maps = st.dictionaries(
    st.sampled_from([f"t{i}" for i in range(9)]),
    st.tuples(st.sampled_from(DTYPES), st.sampled_from([(), (0,), (1,), (3,), (5, 7), (64, 65), (3, 0), (1, 2100)])),
    min_size=1,
)


def checkpoint_of(
    tensors: dict[str, tuple[str, tuple[int, ...]]], files: list[list[str]], *, align: int = 8
) -> Checkpoint:
    """A checkpoint that exists on paper only: tensors by name, in the given files and order."""
    headers = [build_header(((n, *tensors[n]) for n in names), metadata={}, align=align)[1] for names in files]
    paths = tuple(Path(f"model-{i + 1:05d}-of-{len(files):05d}.safetensors") for i in range(len(files)))
    found = {
        name: Tensor(t.dtype, t.shape, (Box(i, t.offset, t.nbytes, (0,) * len(t.shape), t.shape),))
        for i, header in enumerate(headers)
        for name, t in header.tensors.items()
    }
    sizes = tuple(h.file_bytes for h in headers)
    here = Path("ckpt")
    return Checkpoint(path=here, files=paths, sizes=sizes, tensors=found, folder=here, format=Safetensors(), states=())


def data_begins(checkpoint: Checkpoint, file: int) -> int:
    """Where the first tensor of a file lies."""
    return min(t.boxes[0].offset for t in checkpoint.tensors.values() if t.boxes[0].file == file)


@st.composite
def ingredients(draw):
    """A signature, and two or three checkpoints of it, each in a layout of its own (or all in the same)."""
    tensors = draw(tensor_maps)
    found = []
    for _ in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(sorted(tensors)))
        cut = draw(st.integers(0, len(order)))
        files = [part for part in (order[:cut], order[cut:]) if part]
        found.append(checkpoint_of(tensors, files, align=draw(st.sampled_from([1, 8, 4096]))))
    return tensors, found


@settings(max_examples=200)
@given(
    ingredients(),
    st.sampled_from([1, 16, 4096, 8192, 1 << 20]),
    st.sampled_from([None, 1, 5000, 1 << 20]),
    st.sampled_from([None, "BF16", "F32", "F64"]),
)
def test_blocks_cover_every_byte_of_output_and_ingredients_once_and_in_step(given_, block_bytes, shard_bytes, dtype):
    tensors, checkpoints = given_
    layout = make_layout(checkpoints[0], dtype=dtype, shard_bytes=shard_bytes)
    outputs = [np.zeros(file.header.file_bytes, np.int32) for file in layout.files]
    inputs = [[np.zeros(size, np.int32) for size in c.sizes] for c in checkpoints]
    names = [name for file in layout.files for name in file.header.tensors]
    assert sorted(names) == sorted(tensors)
    inside = [
        [
            {
                n: Entry(*t[:2], t.boxes[0].offset, t.boxes[0].nbytes)
                for n, t in c.tensors.items()
                if t.boxes[0].file == file
            }
            for file in range(len(c.sizes))
        ]
        for c in checkpoints
    ]
    for block in blocks(spans(layout, checkpoints), block_bytes=block_bytes):
        item, out_item = ITEM_BYTES[block.dtype], ITEM_BYTES[block.out_dtype]
        assert block.items > 0
        assert max(item, out_item) * block.items <= max(block_bytes, item, out_item)
        outputs[block.file][block.offset : block.offset + block.items * out_item] += 1
        for m, (file, offset) in enumerate(block.inputs):
            inputs[m][file][offset : offset + block.items * item] += 1
        for position in (
            0,
            block.items - 1,
        ):  # the first and last number of a block belong to the same tensor everywhere
            header = layout.files[block.file].header
            name, place = number_at(header.tensors, block.offset + position * out_item)
            for m, (file, offset) in enumerate(block.inputs):
                assert number_at(inside[m][file], offset + position * item) == (name, place)
    for counts, file in zip(outputs, layout.files, strict=True):
        assert not counts[: file.header.data_offset].any()
        assert (counts[file.header.data_offset :] == 1).all()
    for m, checkpoint in enumerate(checkpoints):
        for file, counts in enumerate(inputs[m]):
            assert not counts[: data_begins(checkpoint, file)].any()
            assert (counts[data_begins(checkpoint, file) :] == 1).all()


def number_at(entries, offset: int) -> tuple[str, int]:
    """Which number of which tensor lies at this offset."""
    for name, t in entries.items():
        if t.offset <= offset < t.offset + t.nbytes:
            return name, (offset - t.offset) // ITEM_BYTES[t.dtype]
    raise AssertionError(f"no tensor at {offset}")


TENSORS = {
    "a": ("BF16", (100, 3)),
    "ids": ("I64", (7,)),
    "bias": ("F32", (5,)),
    "flag": ("BOOL", ()),
    "z": ("F64", (0, 2)),
}


def test_the_output_is_laid_out_as_the_template():
    template = checkpoint_of(TENSORS, [["ids", "a"], ["z", "bias", "flag"]])
    layout = make_layout(template)
    assert [file.name for file in layout.files] == [path.name for path in template.files]
    assert [list(file.header.tensors) for file in layout.files] == [["ids", "a"], ["z", "bias", "flag"]]
    assert {n: (t.dtype, t.shape) for f in layout.files for n, t in f.header.tensors.items()} == TENSORS


def test_the_library_reads_every_output_file_and_the_data_start_on_a_page():
    layout = make_layout(checkpoint_of(TENSORS, [list(TENSORS)]))
    (file,) = layout.files
    assert file.name == "model.safetensors"
    assert layout.index() is None
    assert file.header.data_offset % 4096 == 0
    whole = file.lead + bytes(file.header.file_bytes - len(file.lead))
    assert {n: (i["dtype"], tuple(i["shape"])) for n, i in safetensors.deserialize(whole)} == TENSORS


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_another_dtype_converts_floating_tensors_and_leaves_integers(dtype):
    layout = make_layout(checkpoint_of(TENSORS, [list(TENSORS)]), dtype=dtype)
    found = {name: t.dtype for name, t in layout.files[0].header.tensors.items()}
    assert found == {"a": dtype, "bias": dtype, "z": dtype, "ids": "I64", "flag": "BOOL"}


@given(tensor_maps, st.integers(1, 20_000))
def test_shards_hold_at_most_their_size_unless_one_tensor_alone_is_larger(tensors, shard_bytes):
    layout = make_layout(checkpoint_of(tensors, [sorted(tensors)]), shard_bytes=shard_bytes)
    sizes = [[t.nbytes for t in file.header.tensors.values()] for file in layout.files]
    assert all(sum(s) <= shard_bytes or sum(n > 0 for n in s) == 1 for s in sizes)
    for left, right in itertools.pairwise(sizes):  # no shard is smaller than it must be
        assert sum(left) + right[0] > shard_bytes
    if len(layout.files) > 1:
        count = len(layout.files)
        assert [f.name for f in layout.files] == [
            f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)
        ]


def test_the_index_names_every_tensor_and_the_size_of_all():
    layout = make_layout(checkpoint_of(TENSORS, [list(TENSORS)]), shard_bytes=100)
    index = layout.index()
    assert index["weight_map"] == {name: f.name for f in layout.files for name in f.header.tensors}
    total = sum(math.prod(shape) * ITEM_BYTES[dtype] for dtype, shape in TENSORS.values())
    assert index["metadata"]["total_size"] == total
    assert layout.nbytes == total + sum(len(f.lead) for f in layout.files)


def test_neighbours_that_are_alike_in_all_ingredients_are_one_span():
    tensors = dict.fromkeys("abcd", ("BF16", (10,)))
    together, apart = checkpoint_of(tensors, [list("abcd")]), checkpoint_of(tensors, [list("abdc")])
    assert len(spans(make_layout(together), [together, together])) == 1
    assert [s.items for s in spans(make_layout(together), [together, apart])] == [20, 10, 10]


def test_cuts_fall_on_whole_pages_of_the_output_once_the_first_is_reached():
    tensors = {"odd": ("U8", (6,)), "w": ("BF16", (50_000,))}
    checkpoint = checkpoint_of(tensors, [["odd", "w"]])
    cut = [b for b in blocks(spans(make_layout(checkpoint), [checkpoint]), block_bytes=8192) if b.dtype == "BF16"]
    assert all(block.offset % 4096 == 0 for block in cut[1:])
