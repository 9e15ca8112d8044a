"""The records of a study as a page reads them: of one moment, each decoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from trajsoup.errors import StudyError
from trajsoup.study.records.files import FOLDER, Record, Records

R = TypeVar("R", bound=Record)


class KeptRecords(Records):
    """Records to read, kept once read: several sections ask for the same ones."""

    def __init__(self, study: Path) -> None:
        super().__init__(study)
        self._kept: dict[Path, Any] = {}

    def read(self, kind: type[R], name: str | None = None) -> R | None:
        """Return the record, decoded the first time only."""
        path = self.path(kind, name)
        if path not in self._kept:
            self._kept[path] = super().read(kind, name)
        return self._kept[path]


def open_study(folder: Path) -> Records:
    """The records that a study's folder holds so far."""
    if not (folder / FOLDER).is_dir():
        raise StudyError(f"{folder} holds no {FOLDER}/: name the folder of a study, and run `trajsoup run` on it first")
    return KeptRecords(folder)
