"""What a study is by content: the same digest for studies that give the same records, whatever else they say."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trajsoup.lm.builtin import FORK_POINTS
from trajsoup.lm.corpus import CorpusSpec
from trajsoup.store.digest import Algorithm
from trajsoup.store.fields import shaping
from trajsoup.store.known_digests import FILE, KnownDigests
from trajsoup.study.cache import cache_folder
from trajsoup.study.records.files import digest_of

VERSION = 4  # raise it when the same study would give other records


def digest_of_study(source: Any, *, corpus: CorpusSpec | None, folder: Path) -> str:
    """Of every field that shapes results; the corpus by content, so that a file that kept its size is another one."""
    known = KnownDigests(cache_folder() / FILE)

    def content(path: Path) -> Any:
        if path.is_file():
            return known.file(path, Algorithm.SHA256)
        return [
            [str(p.relative_to(path)), known.file(p, Algorithm.SHA256)] for p in sorted(path.rglob("*")) if p.is_file()
        ]

    def name_and_size(path: Path) -> Any:
        if path.parent == FORK_POINTS:
            return content(path)
        return [os.path.relpath(path, folder), path.stat().st_size if path.is_file() else None]

    found = digest_of([VERSION, _plain(source, name_and_size), _plain(corpus, content)])
    known.save()
    return found


def _plain(value: Any, of_path: Any) -> Any:
    """Values that JSON knows."""
    if isinstance(value, Path):
        return of_path(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = shaping(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, of_path) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, of_path) for item in value]
    return value
