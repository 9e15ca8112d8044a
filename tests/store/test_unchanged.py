"""A checkpoint that changes while it is read gives no soup: half of the one version and half of the other is neither."""

import os

import numpy as np
import pytest

from tests.plain_checkpoints import write_plain
from trajsoup.errors import CheckpointError
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import mean_row, plan_row
from trajsoup.store.digest import sha256_file
from trajsoup.store.unchanged import require_unchanged, state_of


@pytest.fixture
def plan(tmp_path):
    for k in range(2):
        write_plain(tmp_path / f"c{k}", {"a": np.full(1000, k, "f4")})
    return plan_row(mean_row([tmp_path / "c0", tmp_path / "c1"]))


def rewrite(path, *, keep_time):
    """The same size and, if asked for, the same time of change: as a copy that forges it would leave."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\0\0")
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("keep_time", [False, True])
def test_an_ingredient_rewritten_during_the_merge_is_an_error_and_no_output(plan, tmp_path, keep_time):
    file = tmp_path / "c1" / "model.safetensors"
    with pytest.raises(CheckpointError, match=r"c1/model\.safetensors changed while it was read"):
        make_soup(plan, tmp_path / "soup", progress=lambda nbytes: rewrite(file, keep_time=keep_time))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c0", "c1"]


def test_one_rewritten_between_plan_and_merge_is_an_error_too(plan, tmp_path):
    rewrite(tmp_path / "c0" / "model.safetensors", keep_time=False)
    with pytest.raises(CheckpointError, match="changed while it was read"):
        make_soup(plan, tmp_path / "soup")


def test_one_that_disappears_is_an_error(plan, tmp_path):
    with pytest.raises(CheckpointError, match="disappeared while it was read"):
        make_soup(plan, tmp_path / "soup", progress=lambda nbytes: (tmp_path / "c1" / "model.safetensors").unlink())


def test_a_hard_link_is_refused_as_well_and_named_as_what_it_may_be(plan, tmp_path):
    file = tmp_path / "c1" / "model.safetensors"
    with pytest.raises(CheckpointError, match=r"run again \(its size and time of writing are as before: did a backup"):
        make_soup(plan, tmp_path / "soup", progress=lambda nbytes: os.link(file, tmp_path / "backup"))


def test_an_untouched_file_is_unchanged(plan, tmp_path):
    make_soup(plan, tmp_path / "soup")
    file = tmp_path / "soup" / "model.safetensors"
    before = state_of(file)
    assert sha256_file(file)
    require_unchanged([file], [before])


def test_an_object_that_was_put_again_is_another_version(tmp_path):
    pytest.importorskip("fsspec")
    from trajsoup.store.remote import RemotePath

    path = RemotePath("memory://unchanged/object")
    path.write_bytes(b"one")
    before = state_of(path)
    require_unchanged([path], [before])
    path.write_bytes(b"two")
    with pytest.raises(CheckpointError, match="changed while it was read"):
        require_unchanged([path], [before])
