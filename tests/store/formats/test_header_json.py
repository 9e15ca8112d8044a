"""What is read quickly is what is read slowly, and headers that are equal are parsed once."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.checkpoints import bf16, write_checkpoint
from trajsoup.errors import CheckpointError
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.formats import header_json
from trajsoup.store.formats import safetensors as reader
from trajsoup.store.formats.safetensors import parse_header

TENSORS = {"a": np.ones((2, 3), "f4"), "b.weight": np.zeros(5, "i8"), "c": np.ones((), "f2"), "é\n": np.ones(3, "u1")}
ONE = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
EMPTY = '{"dtype":"F32","shape":[0],"data_offsets":[8,8]}'
NEXT = '{"dtype":"F32","shape":[2],"data_offsets":[8,16]}'
ENTRIES = [ONE, EMPTY, NEXT, '{"x":"y"}', "{}", "1"]


def slowly(raw: bytes, *, file_bytes: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "quickly", lambda raw: None)
        return parse_header(raw, path=Path("x"), file_bytes=file_bytes)


def outcome(parse, raw: bytes, **sizes):
    try:
        found = parse(raw, **sizes)
    except CheckpointError as error:
        return str(error)
    return list(found.tensors.items()), found.metadata, found.data_offset, found.file_bytes


def both_agree(raw: bytes, *, file_bytes: int) -> None:
    quick = outcome(lambda raw, **sizes: parse_header(raw, path=Path("x"), **sizes), raw, file_bytes=file_bytes)
    assert quick == outcome(slowly, raw, file_bytes=file_bytes)


@settings(max_examples=400)
@given(st.data())
def test_a_damaged_header_is_read_or_refused_in_the_same_words(data):
    note = '},"'[: data.draw(st.integers(0, 3))]
    file = bytearray(safetensors.numpy.save(TENSORS, metadata={"format": "pt", "note": note}))
    end = 8 + struct.unpack("<Q", file[:8])[0]
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(8, end - 1))
        file[place] = data.draw(st.sampled_from([*b'0123456789-+.eE"{}[]:,\\ \t\nFUI', 0, 0x7F, 0x80, 0xC3, 0xFF]))
    both_agree(bytes(file[8:end]), file_bytes=len(file))


@given(
    pairs=st.lists(st.tuples(st.sampled_from(["a", "b", "__metadata__", "é"]), st.sampled_from(ENTRIES)), max_size=4),
    spaces=st.sampled_from(["", " ", "\n"]),
)
@example(pairs=[("a", ONE), ("a", ONE)], spaces="")
@example(pairs=[("__metadata__", '{"x":"y"}'), ("a", ONE), ("__metadata__", '{"x":"z"}')], spaces="")
@example(pairs=[("a", '{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}')], spaces="")
@example(pairs=[("__metadata__", '{"x":"y","x":"y"}'), ("a", ONE)], spaces="")
@example(pairs=[("a", '{"dtype":"F32","shape":[2],"data_offsets":[-0,8]}')], spaces="")
@example(pairs=[("a", '{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}')], spaces="")
@example(pairs=[("\\ud800", ONE)], spaces="")
@example(pairs=[("\\u0061", ONE)], spaces=" ")
def test_a_header_of_any_pairs_is_read_or_refused_in_the_same_words(pairs, spaces):
    raw = ("{" + ",".join(f'"{name}":{entry}' for name, entry in pairs) + "}" + spaces).encode()
    for size in (0, 8, 16):
        both_agree(raw, file_bytes=8 + len(raw) + size)


def test_the_headers_of_the_library_and_our_own_are_read_quickly():
    file = safetensors.numpy.save({name: TENSORS[name] for name in ("a", "b.weight")}, metadata={"format": "pt"})
    for whole in (file, reader.build_header([("a", "BF16", (2, 3))], metadata={"format": "pt", "q": '"'})[0]):
        assert header_json.quickly(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]]) is not None


@pytest.fixture
def parses(monkeypatch) -> list[Path]:
    """Every header that is parsed."""
    seen: list[Path] = []

    def parse(raw, *, path, file_bytes):
        seen.append(path)
        return parse_header(raw, path=path, file_bytes=file_bytes)

    monkeypatch.setattr(reader, "parse_header", parse)
    return seen


def folders(tmp_path: Path, *, shards: int = 2) -> list[Path]:
    names = [f"w{i}" for i in range(6)]
    return [
        write_checkpoint(tmp_path / f"c{c}", {n: bf16(np.full(4, c)) for n in names}, shards=shards) for c in range(3)
    ]


@pytest.mark.parametrize("shards", [1, 2])
def test_checkpoints_whose_headers_are_equal_have_one_signature_that_is_parsed_once(tmp_path, parses, shards):
    opened = [open_checkpoint(path) for path in folders(tmp_path, shards=shards)]
    assert len(parses) == shards
    assert {id(c.tensors) for c in opened} == {id(opened[0].tensors)}
    assert [c.files[0].parent.name for c in opened] == ["c0", "c1", "c2"]


def test_a_signature_goes_with_its_last_checkpoint(tmp_path, parses):
    paths = folders(tmp_path, shards=1)
    for path in paths:
        open_checkpoint(path)
    assert len(parses) == len(paths)


def test_another_header_is_another_signature(tmp_path):
    first, second, _ = folders(tmp_path)
    one = open_checkpoint(first)
    file = second / "model-00002-of-00002.safetensors"
    raw = file.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    header["__metadata__"] = {"format": "pt", "step": "7"}
    text = json.dumps(header, separators=(",", ":")).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    two = open_checkpoint(second)
    assert two.tensors is not one.tensors
    kinds = [{name: (t.dtype, t.shape) for name, t in checkpoint.tensors.items()} for checkpoint in (one, two)]
    assert kinds[0] == kinds[1]


def test_an_index_that_is_stale_is_refused_though_the_headers_are_known(tmp_path):
    first, second, _ = folders(tmp_path)
    held = open_checkpoint(first)
    index = second / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"]["w0"], listed["weight_map"]["w1"] = listed["weight_map"]["w1"], listed["weight_map"]["w0"]
    index.write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match="the index is stale"):
        open_checkpoint(second)
    assert held.tensors


def test_a_file_that_is_cut_is_refused_though_its_header_is_known(tmp_path):
    first, second, _ = folders(tmp_path)
    held = open_checkpoint(first)
    file = second / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"00001-of-00002\.safetensors is damaged: its tensors end"):
        open_checkpoint(second)
    assert held.tensors


def test_side_files_are_judged_though_the_headers_are_known(tmp_path):
    first, second, _ = folders(tmp_path)
    held = open_checkpoint(first)
    (second / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(CheckpointError, match="is quantised"):
        open_checkpoint(second)
    assert held.tensors
