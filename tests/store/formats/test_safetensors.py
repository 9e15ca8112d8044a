"""The header reader against the library of the same name, and against files made to hurt it."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.checkpoints import bf16, write_checkpoint, write_raw
from trajsoup.errors import CheckpointError
from trajsoup.store.formats.safetensors import build_header, parse_header, read_header
from trajsoup.store.stored import ITEM_BYTES

NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4",
         "F32": "<f4", "I64": "<i8", "U64": "<u8", "F64": "<f8"}  # fmt: skip
ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}

names = st.text(max_size=8).filter(lambda name: name != "__metadata__")
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
arrays = st.builds(lambda kind, shape: np.ones(shape, NUMPY[kind]), st.sampled_from(sorted(NUMPY)), shapes)
metadata = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)


def parse(file: bytes):
    """What `read_header` does once the file is in memory."""
    if len(file) < 8 or (length := struct.unpack("<Q", file[:8])[0]) > len(file) - 8:
        raise CheckpointError("too short")
    return parse_header(file[8 : 8 + length], path=Path("x.safetensors"), file_bytes=len(file))


def refuses(header, data: bytes = b"") -> bool:
    """Whether the library refuses this file."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    try:
        safetensors.deserialize(struct.pack("<Q", len(raw)) + raw + data)
    except safetensors.SafetensorError:
        return True
    return False


@given(tensors=st.dictionaries(names, arrays, max_size=5), notes=metadata)
def test_a_file_of_the_library_is_read_as_the_library_reads_it(tensors, notes):
    file = safetensors.numpy.save(tensors, metadata=notes or None)  # of an empty map the library makes bad JSON
    header = parse(file)
    assert dict(header.metadata) == notes
    assert header.file_bytes == len(file)
    assert {
        name: (t.dtype, list(t.shape), file[t.offset : t.offset + t.nbytes]) for name, t in header.tensors.items()
    } == {name: (info["dtype"], info["shape"], bytes(info["data"])) for name, info in safetensors.deserialize(file)}


@given(
    tensors=st.dictionaries(names, st.tuples(st.sampled_from(sorted(NUMPY)), shapes), max_size=5),
    notes=metadata,
    align=st.sampled_from([1, 8, 4096]),
)
def test_the_library_reads_the_headers_we_build(tensors, notes, align):
    lead, header = build_header(((n, d, s) for n, (d, s) in tensors.items()), metadata=notes, align=align)
    file = lead + bytes(header.file_bytes - len(lead))
    assert header.data_offset == len(lead)
    assert len(lead) % align == 0
    assert {name: (i["dtype"], tuple(i["shape"])) for name, i in safetensors.deserialize(file)} == tensors
    assert parse(file).tensors == header.tensors
    assert dict(parse(file).metadata) == notes


@settings(max_examples=600)
@given(st.data())
def test_no_damage_to_a_header_does_more_than_refuse_it_and_what_the_library_refuses_we_refuse(data):
    tensors = {"a": np.ones((2, 3), "f4"), "b.weight": np.zeros(5, "i8"), "c": np.ones((), "f2"), "d": np.ones(0, "u1")}
    file = bytearray(safetensors.numpy.save(tensors, metadata={"format": "pt"}))
    header_end = 8 + struct.unpack("<Q", file[:8])[0]
    interesting = st.sampled_from([*b'0123456789-+.eE"{}[]:,\\ \t\n', 0, 0x7F, 0x80, 0xC3, 0xFF])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, header_end - 1))
        file[place] = data.draw(st.one_of(interesting, st.integers(0, 255)))
    try:
        found = parse(bytes(file))
    except CheckpointError:
        return
    assert {n: (t.dtype, t.shape) for n, t in found.tensors.items()} == {
        n: (i["dtype"], tuple(i["shape"])) for n, i in safetensors.deserialize(bytes(file))
    }


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.sampled_from([2**31, 2**32, 2**40, 2**63, 2**64, 10**30, -0.0, 1.0, float("nan")])
    | st.sampled_from([*sorted(ITEM_BYTES), "F4", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=6,
)
numbers = st.integers(-1, 9) | st.sampled_from([2**31, 2**32, 2**40, 2**62, 2**63, 2**64, True, 1.0, "1", None])
entries = st.one_of(
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from([*sorted(ITEM_BYTES), "F4", "float32", None]),
            "shape": st.lists(numbers, max_size=3),
            "data_offsets": st.lists(numbers, min_size=1, max_size=3),
        },
        optional={"extra": json_values},
    ),
    json_values,
)


@settings(max_examples=600)
@given(
    header=st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), entries, max_size=3), size=st.integers(0, 16)
)
@example(header={"a": {"dtype": "F32", "shape": [2**40, 2**40, 0], "data_offsets": [0, 0]}}, size=0)
@example(header={"a": {"dtype": "F32", "shape": [0, 2**32], "data_offsets": [0, 0]}}, size=0)
def test_no_header_that_is_json_does_more_than_be_refused_and_what_the_library_refuses_we_refuse(header, size):
    raw = json.dumps(header).encode()
    try:
        parse_header(raw, path=Path("x"), file_bytes=8 + len(raw) + size)
    except CheckpointError:
        return
    assert not refuses(raw, bytes(size))


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_refused_with_our_error_or_agree_with_the_library(file):
    try:
        parse(file)
    except CheckpointError:
        return
    safetensors.deserialize(file)


def test_a_truncated_file_says_how_short_it_is(tmp_path):
    path = write_checkpoint(tmp_path, {"w": bf16(np.ones(100))}) / "model.safetensors"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged") as error:
            read_header(path)
        assert f"{length:,}" in str(error.value) or str(length) in str(error.value)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="its tensors end at byte"):
        read_header(path)


def test_an_empty_file_is_damaged(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(CheckpointError, match="it has 0 bytes, too few"):
        read_header(tmp_path / "x")


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 100_000_001, 10_000])
def test_a_header_length_bomb_is_refused_before_memory_is_asked_for(tmp_path, length):
    path = write_raw(tmp_path / "x", {"a": ENTRY}, bytes(8), length=length)
    with pytest.raises(CheckpointError, match=rf"claims {length:,} bytes in a file of"):
        read_header(path)


def test_a_header_above_the_librarys_limit_is_refused_even_if_the_file_is_that_large(tmp_path):
    path = write_raw(tmp_path / "x", b"{}", length=100_000_001)
    with path.open("r+b") as file:
        file.truncate(200_000_000)  # sparse: takes no disk
    with pytest.raises(CheckpointError, match="claims 100,000,001 bytes"):
        read_header(path)


def entry(begin: int, end: int, shape: object = None, dtype: str = "U8") -> dict:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


ATTACKS = {
    "overlapping": ({"a": entry(0, 8), "b": entry(4, 12)}, "'b' starts at byte"),
    "the same bytes twice": ({"a": entry(0, 8), "b": entry(0, 8)}, "starts at byte"),
    "beyond the end": ({"a": entry(0, 100)}, "end at byte"),
    "a gap": ({"a": entry(0, 4), "b": entry(8, 12)}, "'b' starts at byte"),
    "a late start": ({"a": entry(4, 12)}, "'a' starts at byte"),
    "bytes that no tensor holds": ({"a": entry(0, 4)}, "end at byte"),
    "backwards": ({"a": {**ENTRY, "data_offsets": [8, 0]}}, "offsets give -8"),
    "a shape larger than its bytes": ({"a": {**ENTRY, "shape": [3]}}, r"F32 \[3\] needs 12 bytes"),
    "negative shape": ({"a": {**ENTRY, "shape": [-2]}}, "negative number -2"),
    "two negative lengths": ({"a": {**ENTRY, "shape": [-1, -2]}}, "negative number -1"),
    "negative offset": ({"a": {**ENTRY, "data_offsets": [-8, 0]}}, "negative number -8"),
    "huge shape": ({"a": {**ENTRY, "shape": [2**62, 2**62]}}, "overflows"),
    "huge shape made zero": ({"a": {**entry(0, 0), "shape": [2**40, 2**40, 0]}}, "overflows"),
    "huge number": ({"a": {**ENTRY, "shape": [10**40]}}, "not a small non-negative integer"),
    "true as one": ({"a": {**ENTRY, "shape": [True, 2]}}, "not a small non-negative integer"),
    "a float length": ({"a": {**ENTRY, "shape": [2.0]}}, "not a small non-negative integer"),
    "a shape that is text": ({"a": {**ENTRY, "shape": "2"}}, "not a small non-negative integer"),
    "three offsets": ({"a": {**ENTRY, "data_offsets": [0, 4, 8]}}, "lacks dtype, shape or data_offsets"),
    "no dtype": ({"a": {"shape": [2], "data_offsets": [0, 8]}}, "lacks dtype"),
    "a list for a tensor": ({"a": ["F32", [2], [0, 8]]}, "lacks dtype"),
    "an unknown field": ({"a": {**ENTRY, "stride": [1]}}, "fields beyond"),
    "an unknown dtype": ({"a": {**ENTRY, "dtype": "F4"}}, "dtype 'F4', which cannot be averaged: convert"),
    "a dtype that is a list": ({"a": {**ENTRY, "dtype": ["F32"]}}, "cannot be averaged"),
    "metadata of numbers": ({"__metadata__": {"x": 1}, "a": ENTRY}, "not a map of strings"),
    "no object": ([ENTRY], "not a JSON object"),
    "duplicate tensors": (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":1}', "duplicate key 'a'"),
    "duplicate fields": (b'{"a":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}}', "key 'dtype'"),
    "minus zero": (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[-0,8]}}', "negative number -0"),
    "half a surrogate pair": (
        b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        "surrogates not allowed",
    ),
    "not text": (b'{"\xff":1}', "not valid JSON"),
    "deep nesting": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not valid JSON"),
    "a number of a million digits": (b'{"a":' + b"9" * 1_000_000 + b"}", "not valid JSON"),
    "cut off": (b'{"a":{"dtype":"F32"', "not valid JSON"),
}


@pytest.mark.parametrize(("header", "message"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_refused_and_named(tmp_path, header, message):
    path = write_raw(tmp_path / "evil.safetensors", header, bytes(8))
    with pytest.raises(CheckpointError, match=message) as error:
        read_header(path)
    assert str(path) in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot read .*none.safetensors: No such file"):
        read_header(tmp_path / "none.safetensors")
    with pytest.raises(CheckpointError, match=r"cannot read .*: Is a directory"):
        read_header(tmp_path)


def test_tensors_come_in_the_order_of_their_bytes_whatever_the_header_says(tmp_path):
    path = write_raw(tmp_path / "x", {"late": entry(4, 8), "early": entry(0, 4), "none": entry(4, 4)}, bytes(8))
    assert list(read_header(path).tensors) == ["early", "none", "late"]
