"""Read documents: plain text, JSONL, Parquet; a file, or a folder of them.

    paths -> files (in order of name) -> Document (text, source)

A text file is one document. A line of JSONL and a row of Parquet is one document each.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajsoup.errors import CorpusError
from trajsoup.store.json_file import decode_json
from trajsoup.store.regular import opened, read_words

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py", ".text")
LINE_SUFFIXES = (".jsonl", ".ndjson", ".json")
TABLE_SUFFIXES = (".parquet",)
TOKEN_SUFFIXES = (".npy", ".bin")
DEFAULT_SOURCE = "text"
MOST_TEXT_BYTES = 16 << 30  # of one document


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text and where it comes from; sources may be weighted apart in the validation loss."""

    text: str
    source: str = DEFAULT_SOURCE


def files_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Every corpus file that the paths name, folders searched through, in order of name."""
    known = TEXT_SUFFIXES + LINE_SUFFIXES + TABLE_SUFFIXES + TOKEN_SUFFIXES
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in known)
            if not inside:
                raise CorpusError(f"the folder {path} holds no corpus file: expected one of {', '.join(known)}")
            found += inside
        elif path.is_file():
            if path.suffix not in known:
                raise CorpusError(f"{path} is of no known kind: expected one of {', '.join(known)}")
            found.append(path)
        else:
            raise CorpusError(f"there is no corpus at {path}: check the path")
    return tuple(found)


def read_documents(path: Path, *, text_field: str = "text", source_field: str = "source") -> Iterator[Document]:
    """Yield the documents of one text, JSONL or Parquet file."""
    try:
        if path.suffix in TEXT_SUFFIXES:
            yield Document(text=read_words(path, limit=MOST_TEXT_BYTES))
        elif path.suffix in LINE_SUFFIXES:
            yield from _lines(path, text_field, source_field)
        else:
            yield from _table(path, text_field, source_field)
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8 (byte {error.start:,}): convert it first") from error
    except OSError as error:
        raise CorpusError(
            f"cannot read {path}: {error.strerror or error}: check the path and its permissions"
        ) from error


def _lines(path: Path, text_field: str, source_field: str) -> Iterator[Document]:
    with io.TextIOWrapper(opened(path), encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where, cure = f"{path}, line {number:,}", "mend or remove the line"
            record = decode_json(line.encode(), dict[str, Any], where=where, cure=cure, error=CorpusError, nan=True)
            if not isinstance(record.get(text_field), str):
                raise CorpusError(
                    f"{where} has no text in the field {text_field!r} (it has: {', '.join(record)}): name the field that "
                    "holds it with text_field"
                )
            source = record.get(source_field)
            yield Document(text=record[text_field], source=source if isinstance(source, str) else DEFAULT_SOURCE)


def _table(path: Path, text_field: str, source_field: str) -> Iterator[Document]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise CorpusError(f"reading {path} needs pyarrow: pip install pyarrow") from error
    import pyarrow

    try:
        table = parquet.ParquetFile(path)
        names = table.schema_arrow.names
        if text_field not in names:
            raise CorpusError(
                f"{path} has no column {text_field!r} (it has: {', '.join(names)}): name the column with text_field"
            )
        columns = [text_field, *([source_field] if source_field in names else [])]
        for batch in table.iter_batches(columns=columns):
            texts = batch.column(0).to_pylist()
            sources = batch.column(1).to_pylist() if len(columns) > 1 else [DEFAULT_SOURCE] * len(texts)
            for text, source in zip(texts, sources, strict=True):
                if isinstance(text, str):
                    yield Document(text=text, source=source if isinstance(source, str) else DEFAULT_SOURCE)
    except pyarrow.ArrowInvalid as error:
        raise CorpusError(f"{path} is not a readable Parquet file ({error}): copy or write it again") from error
