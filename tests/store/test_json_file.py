"""JSON is typed data or one readable error, whatever stands in the file; and every reader goes through it."""

import json
from dataclasses import dataclass

import pytest

from trajsoup.engine.kept_gram import _read as read_gram
from trajsoup.errors import ScanError, ScoreError, TrajsoupError, VerifyError
from trajsoup.merge.verify import read_record
from trajsoup.store.digest import Algorithm
from trajsoup.store.json_file import decode_json, load_json, read_json
from trajsoup.store.known_digests import KnownDigests
from trajsoup.store.lock import owner_of
from trajsoup.store.metrics import read_metrics, read_trainer_state
from trajsoup.store.scores import ScoreKey, validation_store
from trajsoup.study.train.outcomes import _last_row, finished_outcome

GARBAGE = {
    "empty": b"",
    "cut off": b'{"a": ',
    "not UTF-8": b'{"a": "\xff"}',
    "a list": b"[1]",
    "a number": b"5",
    "null": b"null",
    "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "huge number": b'{"a": ' + b"9" * 10_000 + b"}",
    "null bytes": b"\0\0\0\0",
}
WRONG = {
    **GARBAGE,
    "wrong types": b'{"a": "x", "format": 3, "split": 1, "status": [], "keys": 7, "log_history": 3, "host": {}}',
    "NaN": b'{"a": NaN, "format": NaN, "status": NaN}',
    "infinite": b'{"a": 1e999, "format": 1e999, "status": 1e999}',
}


@dataclass(frozen=True)
class Thing:
    a: int


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("nan", [False, True])
def test_what_is_not_of_the_type_is_one_line(data, nan):
    with pytest.raises(ScoreError) as caught:
        decode_json(data, Thing, where="thing.json", cure="make it again", error=ScoreError, nan=nan)
    assert str(caught.value).startswith("thing.json is damaged (")
    assert str(caught.value).endswith("): make it again")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


def test_a_field_of_another_version_is_passed_over():
    assert decode_json(b'{"a": 1, "new": 2}', Thing, where="-", cure="-", error=ScoreError) == Thing(1)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ScoreError, match=r"cannot read .*thing\.json: No such file"):
        read_json(tmp_path / "thing.json", Thing, cure="-", error=ScoreError)


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_a_memory_that_is_damaged_is_made_anew(tmp_path, data):
    path = tmp_path / "memory.json"
    path.write_bytes(data)
    assert read_gram(path) is None
    assert owner_of(path) is None
    assert len(KnownDigests(path).file(path, Algorithm.SHA256)) == 64
    (tmp_path / "outcome.json").write_bytes(data)
    assert finished_outcome("EXP1", tmp_path, horizon=0) is None
    assert _last_row(path).tokens is None


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_a_damaged_record_is_refused_in_one_line(tmp_path, data):
    (tmp_path / "soup.json").write_bytes(data)
    with pytest.raises(VerifyError, match=r"soup\.json .*"):
        read_record(tmp_path)
    key = ScoreKey(model="m", corpus=None, suite=None, settings={})
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / f"{key.digest}.json").write_bytes(data)
    with pytest.raises(ScoreError, match=r"is damaged \(.*\): remove it, and it is made again"):
        validation_store(tmp_path).read(key)


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_a_damaged_log_is_refused_in_one_line(tmp_path, data):
    (tmp_path / "trainer_state.json").write_bytes(data)
    with pytest.raises(ScanError, match=r"trainer_state\.json is damaged"):
        read_trainer_state(tmp_path / "trainer_state.json")
    if data.strip():
        (tmp_path / "metrics.jsonl").write_bytes(data)
        with pytest.raises(TrajsoupError, match=r"metrics\.jsonl"):
            read_metrics(tmp_path)


def test_a_log_may_hold_nan_as_python_programs_write_it(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "train_loss": float("nan")}))
    (point,) = read_metrics(tmp_path)
    assert point.train_loss != point.train_loss


def test_the_limit_that_tokenizers_write_for_none_is_a_number(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": int(1e30)}))
    assert load_json(tmp_path / "tokenizer_config.json") == {"model_max_length": int(1e30)}
