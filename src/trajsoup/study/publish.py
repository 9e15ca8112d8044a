"""`publish` in a study file: the soup and the records go to an object store when the study is done.

    <study>/soup, <study>/records -> URL/soup (soup.json last) -> URL/records (answer.json last)

A study works on a file system; what others read lies in the store. Whoever finds answer.json there finds everything.
"""

from __future__ import annotations

from pathlib import Path

from trajsoup.errors import StudyError
from trajsoup.merge.provenance import RECORD
from trajsoup.store.checkpoint import INDEX
from trajsoup.store.hub import is_hub
from trajsoup.store.regular import read_small
from trajsoup.store.remote import RemotePath, is_url, place
from trajsoup.store.upload import uploading
from trajsoup.study.records.files import FOLDER

LAST = "answer.json"


def parse_publish(data: object, *, where: str) -> RemotePath | None:
    """Read `publish`."""
    if data is None:
        return None
    found = place(str(data)) if is_url(data) else None
    if found is not None and is_hub(found):
        raise StudyError(
            f"{where} is {data!r}: records go to an object store; the soup alone, `trajsoup push` puts on the Hub"
        )
    if not isinstance(found, RemotePath):
        raise StudyError(f"{where} is {data!r}: write the URL of a folder in an object store, like s3://bucket/folder")
    return found


def publish_study(folder: Path, to: RemotePath, *, soup: Path | None) -> bool:
    """Put soup and records of a finished study below `to`; return whether anything was to be done."""
    if _same(folder / FOLDER / LAST, to / FOLDER / LAST):
        return False
    if soup is not None and not _same(soup / RECORD, to / soup.name / RECORD):
        with uploading(to / soup.name) as upload:
            upload.publish(soup, last=(INDEX, RECORD))
    records = sorted((folder / FOLDER).rglob("*.json"), key=lambda path: (path.name == LAST, path))
    for path in records:
        (to / FOLDER / path.relative_to(folder / FOLDER).as_posix()).write_bytes(read_small(path))
    return True


def _same(here: Path, there: RemotePath) -> bool:
    return there.is_file() and read_small(there) == read_small(here)
