"""Damaged and hostile checkpoints of trainers are refused in one line that names the file."""

import io
import pickle
import shutil
import struct
import zipfile

import pytest
import torch

from trajsoup.errors import CheckpointError
from trajsoup.store.checkpoint import open_checkpoint


@pytest.fixture
def folder(training_checkpoints, tmp_path):
    return shutil.copytree(training_checkpoints / "dcp0" / "step-1", tmp_path / "x")


def refusal(path):
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


def changed(folder, change):
    """Let `change` have its way with the real metadata."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def place(metadata, key="model.embed.weight", rank=0):
    return next(i for m, i in metadata.storage_data.items() if m.fqn == key and (m.offset[0] > 0) == bool(rank))


def chunks(metadata, key="model.embed.weight"):
    return metadata.state_dict_metadata[key].chunks


def lose_place(metadata):
    lost = next(m for m in metadata.storage_data if m.fqn == "model.embed.weight")
    del metadata.storage_data[lost]


class System:
    def __reduce__(self):
        import os

        return os.system, ("touch pwned",)


def gadget(metadata):
    metadata.planner_data = System()


CHANGES = {
    "a gadget": (gadget, r"names 'posix.system', which is not on the list"),
    "outside": (lambda m: setattr(place(m), "relative_path", "../secret"), "outside its folder"),
    "absolute": (lambda m: setattr(place(m), "relative_path", "/etc/passwd"), "outside its folder"),
    "no such file": (lambda m: setattr(place(m), "relative_path", "__9_9.distcp"), "lacks __9_9.distcp"),
    "beyond the end": (lambda m: setattr(place(m), "offset", 10**12), r"ends before byte|reading .* failed"),
    "shifted": (lambda m: setattr(place(m), "offset", 3), "no list of files stands at its end"),
    "short": (lambda m: setattr(place(m), "length", 5), "too short"),
    "negative": (lambda m: setattr(place(m), "offset", -5), "does not describe a checkpoint"),
    "another chunk": (
        lambda m: (setattr(place(m), "offset", place(m, "model.norm.weight").offset)),
        r"it holds BF16 \[4\], where BF16 \[20, 8\]|no list of files",
    ),
    "overlap": (lambda m: chunks(m).append(chunks(m)[0]), "has boxes that overlap"),
    "hole": (lambda m: chunks(m).pop(), "has boxes for 160 of its 320 numbers"),
    "lost place": (lose_place, r"has no place for 'model.embed.weight' at \[0, 0\]"),
    "cut": (lambda m: setattr(m.state_dict_metadata["model.embed.weight"], "size", torch.Size([9, 8])), "outside its"),
    "compressed": (lambda m: setattr(place(m), "transform_descriptors", ["zstd"]), "is stored through zstd"),
    "no chunks": (lambda m: setattr(m.state_dict_metadata["model.embed.weight"], "chunks", None), "does not describe"),
    "no storage": (lambda m: setattr(m, "storage_data", None), "does not describe a checkpoint"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_a_metadata_that_lies_is_refused(folder, case, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    change, message = CHANGES[case]
    changed(folder, change)
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(folder)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "pwned").exists()


def test_cut_and_missing_files_are_refused(folder):
    data = (folder / "__1_0.distcp").read_bytes()
    (folder / "__1_0.distcp").write_bytes(data[:1000])
    refusal(folder)
    (folder / "__1_0.distcp").unlink()
    assert "lacks __1_0.distcp" in refusal(folder)
    (folder / ".metadata").write_bytes(b"\x80")
    assert "its pickle breaks off" in refusal(folder)


def archive(*, compression=zipfile.ZIP_STORED, pickled=None, **more):
    """A zip as torch.save makes it, by hand."""
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(4)}, buffer)
    real = zipfile.ZipFile(io.BytesIO(buffer.getvalue()))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as out:
        for info in real.infolist():
            name = info.filename.split("/", 1)[1]
            content = more.pop(name, real.read(info))
            out.writestr(f"archive/{name}", pickled if pickled and name == "data.pkl" else content)
    return made.getvalue()


ARCHIVES = {
    "compressed": (lambda: archive(compression=zipfile.ZIP_DEFLATED), "is compressed or encrypted"),
    "a bomb": (lambda: archive(compression=zipfile.ZIP_DEFLATED, **{"data/0": bytes(10**7)}), "is compressed"),
    "a gadget": (lambda: archive(pickled=pickle.dumps(System())), "names 'posix.system'"),
    "big-endian": (lambda: archive(byteorder=b"big"), "big-endian"),
    "too short a storage": (lambda: archive(**{"data/0": bytes(4)}), "begins at number 0 of a storage of 4 bytes"),
    "endless nest": (
        lambda: archive(pickled=b"\x80\x02]" + b"(22e" * 60 + b"."),
        "deeper or larger than any checkpoint's|breaks the rules|holds no tensor",
    ),
    "itself": (lambda: archive(pickled=b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."), "deeper or larger"),
    "no tensor": (lambda: archive(pickled=pickle.dumps({"a": 1})), "holds no tensor"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_that_lies_is_refused(tmp_path, case, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, message = ARCHIVES[case]
    (tmp_path / "model.pt").write_bytes(make())
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(tmp_path / "model.pt")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "pwned").exists()


def test_an_archive_made_by_hand_is_read_if_nothing_is_wrong_with_it(tmp_path):
    (tmp_path / "model.pt").write_bytes(archive())
    assert list(open_checkpoint(tmp_path / "model.pt").tensors) == ["w"]


def test_every_length_of_a_cut_archive_is_refused(tmp_path):
    whole = archive()
    for length in range(0, len(whole), 37):
        (tmp_path / "model.pt").write_bytes(whole[:length])
        refusal(tmp_path / "model.pt")


def test_offsets_of_archives_beyond_four_gigabytes_are_read(tmp_path):
    """A storage behind 5 GB of nothing: sparse on disk, with the 64-bit fields that such archives have."""
    path = tmp_path / "large.pt"
    state = {"large": torch.empty(0, dtype=torch.uint8), "last": torch.arange(5.0)}
    torch.save(state, path)
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as old, path.with_suffix(".new").open("wb") as file, zipfile.ZipFile(file, "w") as new:
        for info in old.infolist():
            if info.filename.endswith("data/1"):
                file.seek(5 << 30)
                new.start_dir = 5 << 30  # where the library writes next
            new.writestr(info.filename, old.read(info))
    assert len(raw) < 10_000
    found = open_checkpoint(path.with_suffix(".new"))
    (box,) = found.tensors["last"].boxes
    assert box.offset > 5 << 30
    with found.files[0].open("rb") as file:
        file.seek(box.offset)
        assert struct.unpack("<5f", file.read(20)) == (0, 1, 2, 3, 4)
