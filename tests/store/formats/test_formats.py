"""A format of another package is found by content, opened, and not trusted."""

import json
import pickle

import numpy as np
import pytest

from tests.checkpoints import bf16, write_checkpoint, write_in_order
from tests.toy_format import LISTING, Toy, change_listing, write_toy
from trajsoup.errors import CheckpointError
from trajsoup.store.checkpoint import is_checkpoint, open_checkpoint
from trajsoup.store.formats import FORMATS, format_of, register
from trajsoup.store.formats.safetensors import Safetensors
from trajsoup.store.runs import scan_run

WEIGHTS = {"w": np.arange(12, dtype=np.float32).reshape(4, 3), "b": bf16([1, 2, 3]), "none": np.zeros((0, 2), "f4")}


def test_a_registered_format_opens_as_any_other(toy_format, tmp_path):
    folder = write_toy(tmp_path / "toy", WEIGHTS, config={"hidden_size": 3}, files={"tokenizer.json": "{}"})
    checkpoint, plain = open_checkpoint(folder), open_checkpoint(write_checkpoint(tmp_path / "plain", WEIGHTS))
    assert checkpoint.format.name == "toy"
    assert {n: t[:2] for n, t in checkpoint.tensors.items()} == {n: plain.tensors[n][:2] for n in WEIGHTS}
    assert [len(t.boxes) for t in checkpoint.tensors.values()] == [3, 3, 3]
    assert checkpoint.config == {"hidden_size": 3}
    assert checkpoint.names == (LISTING, "data/0.raw", "data/1.raw")
    assert checkpoint.nbytes == sum(path.stat().st_size for path in checkpoint.files)


def test_its_weight_files_are_no_side_files(toy_format, tmp_path):
    folder = write_toy(tmp_path, WEIGHTS, config={}, files={"tokenizer.json": "{}", "data/notes.txt": "kept"})
    assert {str(f) for f in open_checkpoint(folder).side_files()} == {"config.json", "tokenizer.json", "data/notes.txt"}


def test_a_run_of_its_checkpoints_is_scanned(toy_format, tmp_path):
    for step in (10, 20):
        write_toy(tmp_path / f"checkpoint-{step}", WEIGHTS)
    assert [saved.step for saved in scan_run(tmp_path).checkpoints] == [10, 20]
    assert scan_run(tmp_path / "checkpoint-10").checkpoints[0].path == tmp_path / "checkpoint-10"


def test_a_format_that_nobody_registered_is_refused(tmp_path):
    folder = write_toy(tmp_path, WEIGHTS)
    assert not is_checkpoint(folder)
    with pytest.raises(CheckpointError, match="holds no checkpoint: check the path"):
        open_checkpoint(folder)


def test_the_last_registered_is_asked_first_and_registering_again_replaces(toy_format, tmp_path):
    folder = write_toy(write_checkpoint(tmp_path, WEIGHTS), WEIGHTS)
    assert list(FORMATS)[-2:] == ["safetensors", "toy"]
    assert isinstance(format_of(folder), Toy)
    again = Toy()
    register(again)
    assert list(FORMATS.values())[-1:] == [again]


def test_a_file_is_known_by_its_content_and_not_by_its_name(tmp_path):
    hidden = write_in_order(tmp_path / "weights.bin", {"w": np.ones(3, np.float32)})
    assert list(open_checkpoint(hidden).tensors) == ["w"]
    disguised = tmp_path / "weights.safetensors"
    disguised.write_bytes(pickle.dumps({"w": [1.0] * 100}))
    with pytest.raises(CheckpointError, match=r"weights.safetensors is damaged: its header claims"):
        open_checkpoint(disguised)


@pytest.mark.parametrize("content", [b"", b"{", bytes(8), bytes(8) + b"{", b"\x05" + bytes(7) + b"{}", bytes(100)])
def test_bytes_that_are_no_safetensors_are_not_taken_for_it(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    if content[8:] == b"{":
        assert Safetensors().recognises(tmp_path / "x")  # it begins as one, and is refused when it is opened
        with pytest.raises(CheckpointError, match="damaged"):
            open_checkpoint(tmp_path / "x")
    else:
        assert not Safetensors().recognises(tmp_path / "x")


HOSTILE = {  # boxes of `w` (4 x 3 floats) are rows 3, 2 and 0-1; each is [file, offset, nbytes, start, shape, codec]
    "overlap": (lambda b: b[0].__setitem__(3, [2, 0]), "has boxes that overlap"),
    "twice": (lambda b: b.append(b[0]), "has boxes that overlap"),
    "hole": (lambda b: b.pop(0), "has boxes for 9 of its 12 numbers"),
    "nothing": (lambda b: b.clear(), "has boxes for 0 of its 12 numbers"),
    "out of the file": (
        lambda b: b[0].__setitem__(1, 10**9),
        r"has a box in bytes 1,000,000,000 to 1,000,000,012 of 0.raw, which has \d+",
    ),
    "before the file": (lambda b: b[0].__setitem__(1, -4), "has a box in bytes -4 to 8 of 0.raw"),
    "no such file": (lambda b: b[0].__setitem__(0, 7), "has a box in file number 7 of 3"),
    "wrong byte count": (
        lambda b: b[0].__setitem__(2, 8),
        r"has a box of F32 \[1, 3\], which needs 12 bytes and has 8",
    ),
    "out of the tensor": (
        lambda b: b[0].__setitem__(3, [4, 0]),
        r"has a box at \[4, 0\] of shape \[1, 3\], outside its shape \[4, 3\]",
    ),
    "before the tensor": (
        lambda b: b[0].__setitem__(3, [-1, 0]),
        r"has a box at \[-1, 0\] of shape \[1, 3\], outside",
    ),
    "negative shape": (lambda b: b[0].__setitem__(4, [-1, -3]), r"has a box at \[3, 0\] of shape \[-1, -3\], outside"),
    "another rank": (lambda b: b[0].__setitem__(4, [3]), r"has a box at \[3, 0\] of shape \[3\], outside"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_boxes_are_refused_in_one_line_that_names_the_tensor(toy_format, tmp_path, case):
    change, message = HOSTILE[case]
    folder = write_toy(tmp_path, WEIGHTS)
    change_listing(folder, "w", change)
    with pytest.raises(CheckpointError, match=rf"is damaged: tensor 'w' {message}.*Copy or save it again$") as error:
        open_checkpoint(folder)
    assert "\n" not in str(error.value)


def test_boxes_of_a_scalar_are_one(toy_format, tmp_path):
    folder = write_toy(tmp_path, {"s": np.float32(2)})
    assert len(open_checkpoint(folder).tensors["s"].boxes) == 1
    change_listing(folder, "s", lambda boxes: boxes.append(boxes[0]))
    with pytest.raises(CheckpointError, match="tensor 's' has boxes that overlap"):
        open_checkpoint(folder)


def test_dtypes_that_cannot_be_averaged_are_refused_in_every_format(toy_format, tmp_path):
    folder = write_toy(tmp_path, WEIGHTS)
    listing = json.loads((folder / LISTING).read_text())
    listing["pieces"]["w"]["dtype"] = "F4_UNHEARD"
    (folder / LISTING).write_text(json.dumps(listing))
    with pytest.raises(CheckpointError, match="tensor 'w' is F4_UNHEARD, which cannot be averaged"):
        open_checkpoint(folder)
