import json
import math

import numpy as np
import pytest

from trajsoup.core.scores import DocumentLosses, TaskResult, TestScores, ValidationScores
from trajsoup.core.soup import Row
from trajsoup.errors import ScoreError
from trajsoup.store.identity import Identities
from trajsoup.store.scores import ScoreKey, test_store, validation_store

KEY = ScoreKey(model="m", corpus="c", suite=None, settings={"window": 256})


def scores_of(kind, nll=(1.1, math.nan, -0.0, 3e300)):
    losses = DocumentLosses(
        nll=np.array(nll),
        targets=np.arange(len(nll)) + 300,
        document_bytes=np.arange(len(nll)) + 1,
        source=np.zeros(len(nll), np.uint8),
        source_names=("library",),
    )
    tasks = (
        TaskResult(name="a", category="x", correct=np.array([1.0, 0.0, 1.0]), chance=0.25),
        TaskResult(name="b", category="y", correct=np.array([0.5, math.nan]), chance=None),
    )
    return kind(losses=losses, tasks=tasks)


def same(a, b):
    np.testing.assert_array_equal(a.losses.nll, b.losses.nll)
    np.testing.assert_array_equal(a.losses.targets, b.losses.targets)
    np.testing.assert_array_equal(a.losses.document_bytes, b.losses.document_bytes)
    np.testing.assert_array_equal(a.losses.source, b.losses.source)
    assert a.losses.source_names == b.losses.source_names
    for mine, theirs in zip(a.tasks, b.tasks, strict=True):
        np.testing.assert_array_equal(mine.correct, theirs.correct)
        assert (mine.name, mine.category, mine.chance) == (theirs.name, theirs.category, theirs.chance)
    return True


def test_scores_come_back_bit_for_bit(tmp_path):
    store, scores = validation_store(tmp_path), scores_of(ValidationScores)
    assert store.read(KEY) is None
    store.write(KEY, scores, name="soup")
    assert same(store.read(KEY), scores)
    assert type(store.read(KEY)) is ValidationScores


def test_a_record_says_its_split_and_its_means_in_plain_json(tmp_path):
    validation_store(tmp_path).write(KEY, scores_of(ValidationScores, (2.0, 4.0)), name="soup")
    record = json.loads((tmp_path / "validation" / f"{KEY.digest}.json").read_text())
    assert (record["name"], record["split"]) == ("soup", "validation")
    assert record["loss_per_token"] == pytest.approx(6 / 601)
    assert record["category_means"]["x"] == pytest.approx(2 / 3)
    assert record["overall_average"] is None


def test_the_same_scores_give_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        validation_store(tmp_path / folder).write(KEY, scores_of(ValidationScores), name="soup")
    for path in (tmp_path / "a").rglob("*.json"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_what_documents_share_is_kept_once(tmp_path):
    store = validation_store(tmp_path)
    for i in range(3):
        key = ScoreKey(model=str(i), corpus="c", suite=None, settings={"window": 256})
        store.write(key, scores_of(ValidationScores), name=str(i))
    assert len(list(store.folder.glob("documents-*.json"))) == 1
    assert len(list(store.folder.glob("*.json"))) == 4


@pytest.mark.parametrize(
    "other",
    [
        ScoreKey(model="n", corpus="c", suite=None, settings={"window": 256}),
        ScoreKey(model="m", corpus="d", suite=None, settings={"window": 256}),
        ScoreKey(model="m", corpus="c", suite="s", settings={"window": 256}),
        ScoreKey(model="m", corpus="c", suite=None, settings={"window": 128}),
    ],
    ids=["weights", "corpus", "items", "settings"],
)
def test_anything_that_changes_a_score_changes_its_key(tmp_path, other):
    store = validation_store(tmp_path)
    store.write(KEY, scores_of(ValidationScores), name="soup")
    assert store.read(other) is None


def test_test_records_are_never_read_as_validation(tmp_path):
    test_store(tmp_path).write(KEY, scores_of(TestScores), name="soup")
    assert validation_store(tmp_path).read(KEY) is None
    moved = tmp_path / "validation" / f"{KEY.digest}.json"
    moved.parent.mkdir()
    moved.write_bytes((tmp_path / "test" / moved.name).read_bytes())
    with pytest.raises(ScoreError, match="record of the test split"):
        validation_store(tmp_path).read(KEY)
    with pytest.raises(ScoreError, match="do not belong"):
        validation_store(tmp_path).write(KEY, scores_of(TestScores), name="soup")


@pytest.mark.parametrize(
    "damage", ["", "[]", '{"split": "validation"}', '{"split": "validation", "nll": 5, "tasks": []}']
)
def test_a_damaged_record_says_so(tmp_path, damage):
    store = validation_store(tmp_path)
    store.write(KEY, scores_of(ValidationScores), name="soup")
    (store.folder / f"{KEY.digest}.json").write_text(damage)
    with pytest.raises(ScoreError, match="remove it, and it is made again"):
        store.read(KEY)


def test_a_row_of_one_checkpoint_is_that_checkpoint(tmp_path):
    identities = Identities(tmp_path / "identities.json")
    known = {"a": "1" * 64, "b": "2" * 64, "copy of a": "1" * 64}
    assert identities.row(Row(name="x", weights={"a": 1.0}), known) == "1" * 64
    half = identities.row(Row(name="x", weights={"a": 0.5, "b": 0.5}), known)
    assert half == identities.row(Row(name="y", weights={"b": 0.5, "copy of a": 0.5}), known)
    assert half != identities.row(Row(name="x", weights={"a": 0.25, "b": 0.75}), known)
    assert identities.row(Row(name="x", weights={"a": 0.5}), known) != "1" * 64
