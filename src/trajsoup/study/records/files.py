"""Read and write the records of a study, and skip what is already there.

    inputs -> known? -> else: make it -> write_atomic(<study>/records/<name>.json)

A record is immutable: it is written once for its inputs. When the inputs changed, the record is made anew and
replaces the old one; nothing is ever patched. Whoever writes holds the study (`writing`), so two never write at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from trajsoup.errors import HeldError, StudyError
from trajsoup.store.json_file import json_text, read_json
from trajsoup.store.lock import holding
from trajsoup.store.publish import write_atomic
from trajsoup.store.regular import read_small

FOLDER = "records"
FORMAT = "trajsoup/record/1"
LOCK = ".run.lock"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What every record has. Of a kind with several records (sweeps), each has a `name` of its own."""

    FILE: ClassVar[str]  # below records/, without .json; a folder where `SEVERAL`
    SEVERAL: ClassVar[bool] = False
    inputs: Mapping[str, str]  # what it was made from, by content hash


R = TypeVar("R", bound=Record)


class NotMadeError(Exception):
    """A record is missing or out of date, and whoever asked wanted only to look."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Head:
    """What is read of a record without reading the rest."""

    format: str
    inputs: Mapping[str, str]


class Records:
    """The records of one study folder, to read; `writing` gives them to write.

    With `look_only`, what would be made raises NotMadeError instead.
    """

    def __init__(self, study: Path, *, look_only: bool = False, held: bool = False) -> None:
        self.study = study
        self.folder = study / FOLDER
        self._look_only, self._held = look_only, held

    def path(self, kind: type[Record], name: str | None = None) -> Path:
        """Where a record lies: records/plan.json, or records/sweeps/coefficients.json."""
        return self.folder / f"{name_of(kind, name)}.json"

    def read(self, kind: type[R], name: str | None = None) -> R | None:
        """Return the record of that kind (and name, where there are several), or None where there is none yet."""
        path = self.path(kind, name)
        if self._head(path) is None:
            return None
        return _decode(path, kind)

    def require(self, kind: type[R], name: str | None = None) -> R:
        """Return the record, or say which command makes it."""
        found = self.read(kind, name)
        if found is None:
            raise StudyError(f"{self.path(kind, name)} does not exist yet: run `trajsoup run` on the study first")
        return found

    def every(self, kind: type[R]) -> dict[str, R]:
        """All records of a kind with several, by name; none that was made from records which have changed since."""
        names = sorted(path.stem for path in (self.folder / kind.FILE).glob("*.json"))
        found = {name: self.require(kind, name) for name in names}
        return {name: record for name, record in found.items() if self._is_current(record)}

    def _is_current(self, record: Record) -> bool:
        return all(record.inputs[name] == digest for name, digest in self.digests_by_name(record.inputs).items())

    def digest(self, kind: type[Record], name: str | None = None) -> str:
        """sha256 of a record's file: how later records name it among their inputs."""
        return hashlib.sha256(read_small(self.path(kind, name))).hexdigest()

    def digests(self, *kinds: type[Record]) -> dict[str, str]:
        """The inputs of a record that is made from these."""
        return {kind.FILE: self.digest(kind) for kind in kinds}

    def digests_by_name(self, names: Iterable[str]) -> dict[str, str]:
        """The digests of those of these file names that are records of the study."""
        paths = {name: self.folder / f"{name}.json" for name in names}
        return {name: hashlib.sha256(read_small(path)).hexdigest() for name, path in paths.items() if path.is_file()}

    def inputs(self, name: str) -> Mapping[str, str] | None:
        """What the record of that file name was made from, without reading the rest; None where there is none yet."""
        head = self._head(self.folder / f"{name}.json")
        return None if head is None else head.inputs

    def stands(self, kind: type[Record], inputs: Mapping[str, str], name: str | None = None) -> bool:
        """Whether the record exists and was made from these inputs."""
        if self.inputs(name_of(kind, name)) == inputs:
            return True
        if self._look_only:
            raise NotMadeError(name_of(kind, name))
        return False

    def ensure(self, kind: type[R], inputs: Mapping[str, str], make: Callable[[], R]) -> bool:
        """Make the record unless the one that exists has these inputs; return whether it was made now."""
        if self.stands(kind, inputs):
            return False
        self.write(make())
        return True

    def write(self, record: Record) -> None:
        """Write a record, whole or not at all."""
        assert self._held, "records are written by whoever holds the study: see `writing`"
        path = self.path(type(record), record.name if record.SEVERAL else None)  # type: ignore[attr-defined]
        write_atomic(path, json_text({"format": FORMAT, **dataclasses.asdict(record)}) + "\n")

    def _head(self, path: Path) -> _Head | None:
        if not path.is_file():
            return None
        head = _decode(path, _Head)
        if head.format != FORMAT:
            raise StudyError(
                f"{path} is a record of the form {head.format!r}, not {FORMAT!r}: remove it, and it is made again"
            )
        return head


def records(study: Path | str) -> Records:
    """The records in the folder of a study.

    >>> records("study").require(AnswerRecord).words  # doctest: +SKIP
    """
    return Records(Path(study))


@contextlib.contextmanager
def writing(study: Path) -> Iterator[Records]:
    """Hold the study and give its records to write; those of its seeds, which lie below it, are held with it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(holding(study / LOCK))
        except HeldError as error:
            raise StudyError(f"{study.absolute()} is being run by {error}: wait for it, or stop it first") from error
        yield Records(study, held=True)


def name_of(kind: type[Record], name: str | None = None) -> str:
    """The file name of a record below records/, without .json."""
    assert (name is not None) == kind.SEVERAL
    return kind.FILE if name is None else f"{kind.FILE}/{name}"


def digest_of(data: Any) -> str:
    """sha256 of settings, for `inputs`."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


T = TypeVar("T")


def _decode(path: Path, kind: type[T]) -> T:
    return read_json(path, kind, cure="remove it, and it is made again", error=StudyError)
