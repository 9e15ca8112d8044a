"""Score records: one small JSON file per model, split, corpus and settings, written as soon as it is known.

    scores/validation/<key>.json      what the model scored, with its mean values in plain sight
    scores/validation/<corpus>.json   what all models share: tokens, bytes and source of each document

The key is a hash of the model's identity and of what it was scored on, so nothing is scored twice and a killed run goes
on where it was. Per-document sums are kept exactly, as the bytes of float64. Records carry no clock: the same scores
give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.scores import DocumentLosses, Scores, TaskResult, TestScores, ValidationScores
from trajsoup.core.splits import Split
from trajsoup.errors import ScoreError
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic

AGAIN = "remove it, and it is made again"
STORED = ("u1", "<i4", "<i8", "<f4", "<f8")
KIND = TypeVar("KIND", ValidationScores, TestScores)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreKey:
    """What a score depends on."""

    model: str  # identity of the weights or of the row
    corpus: str | None  # digest of the documents; None: only tasks were scored
    suite: str | None  # digest of the items; None: only the loss was scored
    settings: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """The name of the record."""
        parts = [self.model, self.corpus, self.suite, dict(self.settings)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]

    @property
    def documents(self) -> str:
        """The name of what all records of this corpus and these settings share."""
        return _documents_name(self.corpus, self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    name: str
    category: str
    chance: float | None
    items: str
    answer_loss: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What is read of a record; the rest is for people."""

    split: str
    corpus: str | None
    settings: dict[str, Any]
    tasks: tuple[_Task, ...]
    nll: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Documents:
    targets: str
    bytes: str | None
    source: str | None
    source_names: tuple[str, ...]


class ScoreStore(Generic[KIND]):
    """The records of one split. The two kinds have a folder and a type each: one is never read as the other."""

    def __init__(self, folder: Path, kind: type[KIND]) -> None:
        self.kind = kind
        self.split = Split.VALIDATION if kind is ValidationScores else Split.TEST
        self.folder = folder / self.split.value
        self._documents: dict[str, dict[str, Any]] = {}  # what records share, by its name: decoded once

    def read(self, key: ScoreKey) -> KIND | None:
        """Return the scores if they are known."""
        return self.named(key.digest) if (self.folder / f"{key.digest}.json").is_file() else None

    def named(self, name: str) -> KIND:
        """The scores of one record, by its name: how other records refer to it (`kept`)."""
        path = self.folder / f"{name}.json"
        record = read_json(path, _Record, cure=AGAIN, error=ScoreError)
        if record.split != self.split.value:
            raise ScoreError(f"{path} is a record of the {record.split} split: it was put into the wrong folder")
        try:
            losses = None
            if record.nll is not None:
                shared = self._shared(_documents_name(record.corpus, record.settings))
                losses = DocumentLosses(nll=_decode(record.nll, "<f8"), **shared)
            tasks = tuple(
                TaskResult(
                    name=t.name,
                    category=t.category,
                    chance=t.chance,
                    correct=_decode(t.items, "<f8"),
                    answer_loss=None if t.answer_loss is None else _decode(t.answer_loss, "<f8"),
                    document=None if t.document is None else _decode(t.document, "<i8"),
                )
                for t in record.tasks
            )
        except (TypeError, ValueError) as error:  # of base64 and numpy
            raise ScoreError(f"{path} is damaged ({error}): {AGAIN}") from error
        return self.kind(losses=losses, tasks=tasks, kept=(name,))

    def _shared(self, name: str) -> dict[str, Any]:
        if name not in self._documents:
            shared = read_json(self.folder / f"documents-{name}.json", _Documents, cure=AGAIN, error=ScoreError)
            self._documents[name] = {
                "targets": _decode(shared.targets, "<i8"),
                "document_bytes": None if shared.bytes is None else _decode(shared.bytes, "<i8"),
                "source": None if shared.source is None else _decode(shared.source, "u1"),
                "source_names": shared.source_names,
            }
        return self._documents[name]

    def write(self, key: ScoreKey, scores: KIND, *, name: str) -> None:
        """Keep scores; `name` is for whoever reads the file."""
        if type(scores) is not self.kind:
            raise ScoreError(
                f"{type(scores).__name__} do not belong into the {self.split.value} records: a bug, report it"
            )
        if scores.losses is not None:
            shared = self.folder / f"documents-{key.documents}.json"
            if not shared.is_file():
                write_atomic(shared, json.dumps(_documents(scores.losses), indent=1) + "\n")
        write_atomic(self.folder / f"{key.digest}.json", json.dumps(self._record(key, scores, name), indent=1) + "\n")

    def _record(self, key: ScoreKey, scores: Scores, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "split": self.split.value,
            "loss_per_token": None if scores.losses is None else _plain(scores.losses.loss()),
            "overall_average": None if scores.overall_average is None else _plain(scores.overall_average),
            "category_means": {category: _plain(mean) for category, mean in scores.category_means.items()},
            "model": key.model,
            "corpus": key.corpus,
            "suite": key.suite,
            "settings": dict(key.settings),
            "tasks": [
                {
                    "name": task.name,
                    "category": task.category,
                    "accuracy": _plain(task.accuracy),
                    "chance": task.chance,
                    "items": _encode(task.correct, "<f8"),
                    "answer_loss": None if task.answer_loss is None else _encode(task.answer_loss, "<f4"),
                    "document": None if task.document is None else _encode(task.document, "<i4"),
                }
                for task in scores.tasks
            ],
            "nll": None if scores.losses is None else _encode(scores.losses.nll, "<f8"),
        }


def validation_store(folder: Path) -> ScoreStore[ValidationScores]:
    """The records that choosing may read."""
    return ScoreStore(folder, ValidationScores)


def test_store(folder: Path) -> ScoreStore[TestScores]:
    """The records that only the report reads."""
    return ScoreStore(folder, TestScores)


test_store.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]  pytest: not a test


def _documents_name(corpus: str | None, settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([corpus, dict(settings)], sort_keys=True).encode()).hexdigest()[:40]


def _documents(losses: DocumentLosses) -> dict[str, Any]:
    return {
        "documents": len(losses.nll),
        "tokens": int(losses.targets.sum()),
        "source_names": list(losses.source_names),
        "targets": _encode(losses.targets, "<i8"),
        "bytes": None if losses.document_bytes is None else _encode(losses.document_bytes, "<i8"),
        "source": None if losses.source is None else _encode(losses.source, "u1"),
    }


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return value if np.isfinite(value) else None


def _encode(values: NDArray[Any], dtype: str) -> str:
    """The bytes of an array; one byte per entry where all entries are small whole numbers."""
    array = values.astype(dtype)
    if ((array >= 0) & (array <= 255)).all() and (array == array.astype("u1")).all():
        return "u1:" + base64.b64encode(array.astype("u1").tobytes()).decode()
    return f"{dtype}:" + base64.b64encode(array.tobytes()).decode()


def _decode(text: str, dtype: str) -> NDArray[Any]:
    kind, _, data = text.partition(":")
    if kind not in STORED:  # numpy reads any other text as a small language of its own
        raise ValueError(f"its numbers are of the kind {kind[:20]!r}")
    return np.frombuffer(base64.b64decode(data), kind).astype(dtype)
