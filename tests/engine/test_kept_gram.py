"""The Gram matrix kept by content: nothing is multiplied twice, and a changed checkpoint is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.checkpoints import write_checkpoint
from tests.runs import CONFIG, SIDE_FILES, weights
from trajsoup.engine import kept_gram as module
from trajsoup.engine.gram import gram
from trajsoup.engine.kept_gram import groups, kept_gram
from trajsoup.store.checkpoint import open_checkpoint


@pytest.fixture
def checkpoints(tmp_path):
    for i in range(5):
        write_checkpoint(tmp_path / f"c{i}", weights(i, away=0.01 * i), config=CONFIG, files=SIDE_FILES)
    return {f"c{i}": open_checkpoint(tmp_path / f"c{i}") for i in range(5)}


class Counted:
    """The engine's pass, and what it was asked for."""

    def __init__(self, monkeypatch):
        self.bytes, self.new = 0, []
        monkeypatch.setattr(module, "gram", self._gram)

    def _gram(self, checkpoints, **options):
        known = options["known"]
        self.new.append([key for key in checkpoints if known is None or key not in known.keys])
        return gram(checkpoints, **options)

    def read(self, nbytes):
        self.bytes += nbytes


def some(checkpoints, *names):
    return {name: checkpoints[name] for name in names}


def hashes(checkpoints):
    return {key: f"sha-{key}" for key in checkpoints}


def test_what_is_kept_is_what_one_pass_gives(tmp_path, checkpoints):
    path = tmp_path / "gram.json"
    for names in (("c0", "c1", "c2"), tuple(checkpoints)):
        found = kept_gram(some(checkpoints, *names), hashes=hashes(checkpoints), centre="c0", path=path)
    whole = gram(checkpoints, centre="c0", groups=groups)
    assert found.keys == whole.keys
    assert found.groups.keys() == whole.groups.keys()
    for name, products in whole.groups.items():
        assert np.allclose(found.group(name).inner, products.inner, rtol=1e-6, atol=1e-12)


def test_nothing_is_read_for_what_is_known_and_each_checkpoint_once_for_a_new_one(tmp_path, checkpoints, monkeypatch):
    path, known = tmp_path / "gram.json", hashes(checkpoints)
    count = Counted(monkeypatch)
    one = checkpoints["c0"].nbytes

    def measure(*names):
        count.bytes = 0
        return kept_gram(some(checkpoints, *names), hashes=known, centre="c0", path=path, progress=count.read)

    measure("c0", "c1", "c2")
    first = count.bytes
    assert 0 < first <= 3 * one
    measure("c0", "c1", "c2")
    assert count.bytes == 0
    measure("c2", "c0")
    assert count.bytes == 0
    assert count.new == [["sha-c0", "sha-c1", "sha-c2"]]
    measure("c0", "c1", "c2", "c3")
    assert count.bytes == first // 3 * 4
    assert count.new[1:] == [["sha-c3"]]  # no product among the old ones


def test_another_name_is_known_and_another_content_is_not(tmp_path, checkpoints, monkeypatch):
    path, count = tmp_path / "gram.json", Counted(monkeypatch)
    kept_gram(some(checkpoints, "c0", "c1"), hashes=hashes(checkpoints), centre="c0", path=path)
    again = kept_gram(
        {"start": checkpoints["c0"], "x": checkpoints["c1"]},
        hashes={"start": "sha-c0", "x": "sha-c1"},
        centre="start",
        path=path,
    )
    assert (again.keys, again.centre) == (("start", "x"), "start")
    assert len(count.new) == 1
    kept_gram(some(checkpoints, "c0", "c1"), hashes={"c0": "sha-c0", "c1": "other"}, centre="c0", path=path)
    assert count.new[1:] == [["other"]]


def test_identical_checkpoints_are_multiplied_once(tmp_path, checkpoints, monkeypatch):
    count = Counted(monkeypatch)
    twins = {"a": checkpoints["c1"], "b": checkpoints["c1"], "c0": checkpoints["c0"]}
    found = kept_gram(twins, hashes={"a": "same", "b": "same", "c0": "fork"}, centre="c0", path=tmp_path / "gram.json")
    assert count.new == [["same", "fork"]]
    inner = found.whole.inner
    assert inner[0, 0] == inner[0, 1] == inner[1, 1] > 0


def test_about_a_mean_only_the_same_set_is_known(tmp_path, checkpoints, monkeypatch):
    path, count = tmp_path / "gram.json", Counted(monkeypatch)
    for names in (("c1", "c2"), ("c2", "c1"), ("c1", "c2", "c3")):
        kept_gram(some(checkpoints, *names), hashes=hashes(checkpoints), centre=None, path=path)
    assert [len(new) for new in count.new] == [2, 3]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}'])
def test_a_damaged_record_is_made_anew(tmp_path, checkpoints, text):
    path = tmp_path / "gram.json"
    path.write_text(text)
    found = kept_gram(some(checkpoints, "c0", "c1"), hashes=hashes(checkpoints), centre="c0", path=path)
    assert found.whole.inner[1, 1] > 0
    assert path.read_text() != text
