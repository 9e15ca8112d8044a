"""What lies beside the weights is judged before a weight is read, and only plain files of the folder itself travel."""

import os

import pytest

from tests.plain_checkpoints import write_plain
from trajsoup.errors import CheckpointError, TrajsoupError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import mean_row, plan_row
from trajsoup.store.checkpoint import MOST_SIDE_BYTES, open_checkpoint


def planned(folder, *, files=None):
    for k in range(2):
        write_plain(folder / f"c{k}", {"a": write_numbers(k)}, files=files)
    return plan_row(mean_row([folder / "c0", folder / "c1"]))


def write_numbers(k):
    import numpy as np

    return np.full(4, k, "f4")


HEADS = {
    "no such day": "date: 2024-02-30\nlicense: mit",
    "a bad tag": "license: !!int x",
    "deep": "license: " + "[" * 5000,
    "a mapping": "license: {a: 1}",
    "bytes": "license: !!binary aGVsbG8=",
    "half a surrogate": 'license: "\\ud800"',
    "nothing": "",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_model_card_with_any_head_ends_in_a_soup(tmp_path, head):
    plan = planned(tmp_path, files={"README.md": f"---\n{head}\n---\n# Card\n"})
    make_soup(plan, tmp_path / "soup")
    assert (tmp_path / "soup" / "README.md").read_text().startswith("---\n")


def test_a_licence_that_cannot_be_read_is_said_and_one_that_can_is_kept(tmp_path):
    wrong = planned(tmp_path / "wrong", files={"README.md": "---\nlicense: !!int x\n---\n"})
    assert any("licence" in note and "not carried over" in note for note in wrong.notes)
    right = planned(tmp_path / "right", files={"README.md": "---\nlicense: apache-2.0\nlanguage: [en, de]\n---\n"})
    make_soup(right, tmp_path / "soup")
    assert "license: apache-2.0\nlanguage:\n- en\n- de\n" in (tmp_path / "soup" / "README.md").read_text()
    assert not any("not carried over" in note for note in right.notes)


def test_side_files_are_judged_before_the_first_weight(tmp_path, monkeypatch):
    plan = planned(tmp_path, files={"config.json": "{}", "notes.txt": "x"})
    (tmp_path / "c0" / "notes.txt").unlink()  # between plan and merge
    read = []
    plan.template.side_files()
    with pytest.raises(TrajsoupError, match=r"cannot read .*notes\.txt"):
        make_soup(plan, tmp_path / "soup", progress=read.append)
    assert read == []
    assert not (tmp_path / "soup").exists()


def test_links_out_of_the_folder_pipes_and_devices_stay_behind_and_are_said(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a key")
    plan = planned(tmp_path, files={"config.json": "{}", "deeper/vocabulary.txt": "x"})
    folder = tmp_path / "c0"
    (folder / "notes.txt").symlink_to(secret)
    (folder / "inside.txt").symlink_to(folder / "config.json")
    (folder / "zero.txt").symlink_to("/dev/zero")
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.txt")
    (folder / "linked").symlink_to(tmp_path)
    with (folder / "large.txt").open("wb") as file:
        file.truncate(MOST_SIDE_BYTES + 1)
    plan = plan_row(mean_row([tmp_path / "c0", tmp_path / "c1"]))
    (note,) = [note for note in plan.notes if "left out" in note]
    for name in (
        "notes.txt is a link to",
        "zero.txt is a link",
        "gone.txt",
        "pipe.txt",
        "large.txt has more",
        "linked/",
    ):
        assert name in note
    make_soup(plan, tmp_path / "soup")
    assert {path.name for path in (tmp_path / "soup").iterdir()} == {
        *("config.json", "deeper", "inside.txt", "README.md", "soup.json", "model.safetensors")
    }


def test_the_links_of_the_hub_s_cache_travel(tmp_path):
    folder = write_plain(tmp_path / "models--x" / "snapshots" / "abc")
    blobs = tmp_path / "models--x" / "blobs"
    blobs.mkdir()
    (blobs / "123").write_text("{}")
    (folder / "config.json").symlink_to("../../blobs/123")
    (folder / "other.json").symlink_to("../../../other")
    checkpoint = open_checkpoint(folder)
    assert [path.name for path in checkpoint.side_files()] == ["config.json"]


@pytest.mark.parametrize("name", [b"caf\xe9", b"new\nline", b"\x1b[31mred"])
def test_a_folder_whose_name_no_record_could_keep_is_refused_first(tmp_path, name):
    folder = os.fsencode(tmp_path) + b"/" + name
    os.mkdir(folder)
    from pathlib import Path

    write_plain(Path(os.fsdecode(folder)) / "c")
    with pytest.raises(CheckpointError, match="rename it") as caught:
        open_checkpoint(os.fsdecode(folder) + "/c")
    assert str(caught.value).isprintable()
