"""Read and write the records of a study, and skip what is already there.

    inputs -> known? -> else: make it -> write_atomic(<study>/records/<name>.json)

A record is immutable: it is written once for its inputs. When the inputs changed, the record is made anew and
replaces the old one; nothing is ever patched.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from trajsoup.errors import StudyError
from trajsoup.store.json_text import json_text
from trajsoup.store.publish import write_atomic
from trajsoup.study.records import results as r
from trajsoup.study.records.scaling import FrontierRecord, TheoryRecord

FOLDER = "records"
FORMAT = "trajsoup/record/1"
KINDS: Mapping[str, type[Any]] = {
    "plan": r.PlanRecord,
    "train": r.TrainRecord,
    "validation": r.ValidationRecord,
    "screen": r.ScreenRecord,
    "rows": r.RowsRecord,
    "evaluations": r.EvaluationsRecord,
    "comparisons": r.ComparisonsRecord,
    "geometry": r.GeometryRecord,
    "sft": r.FineTuningRecord,
    "frontier": FrontierRecord,
    "theory": TheoryRecord,
    "answer": r.AnswerRecord,
    "retention": r.RetentionRecord,
    "seeds": r.SeedsRecord,
}
SWEEPS = "sweeps/"


class NotMadeError(Exception):
    """A record is missing or out of date, and whoever asked wanted only to look."""


class Records:
    """The records of one study folder. With `look_only`, what would be made raises NotMadeError instead."""

    def __init__(self, study: Path, *, look_only: bool = False) -> None:
        self.folder = study / FOLDER
        self._look_only = look_only

    def path(self, name: str) -> Path:
        """Where a record lies: `plan`, or `sweeps/coefficients`."""
        return self.folder / f"{name}.json"

    def read(self, name: str) -> Any | None:
        """Return the record of that name, or None where there is none yet."""
        path = self.path(name)
        if not path.is_file():
            return None
        try:
            return from_json(kind_of(name), _load(path))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _not_a_record(path, error) from error

    def require(self, name: str) -> Any:
        """Return the record, or say which command makes it."""
        found = self.read(name)
        if found is None:
            raise StudyError(f"{self.path(name)} does not exist yet: run `trajsoup run` on the study first")
        return found

    def digest(self, name: str) -> str:
        """sha256 of a record's file: how later records name it among their inputs."""
        return hashlib.sha256(self.path(name).read_bytes()).hexdigest()

    def sweeps(self) -> tuple[str, ...]:
        """Names of the sweeps that have a record."""
        return tuple(sorted(path.stem for path in (self.folder / "sweeps").glob("*.json")))

    def inputs(self, name: str) -> Mapping[str, str] | None:
        """What a record was made from, without reading the rest; None where there is none yet."""
        path = self.path(name)
        if not path.is_file():
            return None
        data = _load(path)
        return data.get("inputs")

    def stands(self, name: str, inputs: Mapping[str, str]) -> bool:
        """Whether the record exists and was made from these inputs."""
        if self.inputs(name) == inputs:
            return True
        if self._look_only:
            raise NotMadeError(name)
        return False

    def ensure(self, name: str, inputs: Mapping[str, str], make: Callable[[], Any]) -> bool:
        """Make the record unless the one that exists has these inputs; return whether it was made now."""
        if self.stands(name, inputs):
            return False
        self.write(name, make())
        return True

    def write(self, name: str, record: Any) -> None:
        """Write a record, whole or not at all."""
        assert isinstance(record, kind_of(name))
        write_atomic(self.path(name), json_text({"format": FORMAT, **dataclasses.asdict(record)}) + "\n")


def _load(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_a_record(path, error) from error
    return data


def _not_a_record(path: Path, error: Exception) -> StudyError:
    return StudyError(f"{path} is not a record ({error}): remove it, and it is made again")


def kind_of(name: str) -> type[Any]:
    """The type of a record."""
    if name.startswith(SWEEPS):
        return r.SweepRecord
    return KINDS[name]


def digest_of(data: Any) -> str:
    """sha256 of settings, for `inputs`."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def from_json(kind: Any, data: Any) -> Any:
    """Build a value of an annotated type from JSON values. Knows what records are made of, nothing more."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None:
            return None
        chosen = [a for a in arguments if a is not type(None)]
        if len(chosen) > 1:  # float | str
            return data
        return from_json(chosen[0], data)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(from_json(arguments[0], item) for item in data)
        return tuple(from_json(a, item) for a, item in zip(arguments, data, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {key: from_json(arguments[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: from_json(hints[name], item) for name, item in data.items()})  # type: ignore[operator]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(data)
    if kind is float:
        return None if data is None else float(data)
    return data
