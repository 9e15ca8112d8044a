"""What W&B keeps of a run on disk: `run-ID.wandb`, a log of protobuf records in blocks of 32 KiB.

    :W&B, magic, version -> pieces (checksum, length, kind) -> records -> history: rows of {name: value} by step

The package wandb is large and reads it only to upload it. A last piece that is cut off is that of a run which still trains.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from trajsoup.errors import ScanError
from trajsoup.store.event_files import MAX_FILE_BYTES, fields
from trajsoup.store.remote import Place
from trajsoup.store.source import read_range

SUFFIX = ".wandb"
_START = b":W&B\xe1\xbe\x00"
_BLOCK = 32 << 10
_HEADER = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def read_wandb_files(paths: Sequence[Place]) -> list[tuple[int, dict[str, float]]]:
    """(step, {name: value}) in the order of steps. Where a resumed run logged a step again, the later file counts."""
    rows: dict[int, dict[str, float]] = {}
    for path in sorted(paths, key=lambda path: path.name):
        for record in _records(path):
            try:
                for step, name, value in _history(record):
                    rows.setdefault(step, {})[name] = value
            except (IndexError, ValueError, RecursionError) as error:
                raise ScanError(f"{path} is damaged: a record cannot be read. Copy it again, or remove it") from error
    return sorted(rows.items())


def _records(path: Place) -> Iterator[bytes]:
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ScanError(f"{path} has {size:,} bytes: write the losses into a metrics.csv, and move it away")
    raw = read_range(path, 0, size)
    if not raw.startswith(_START):
        raise ScanError(f"{path} does not begin as a log of W&B: write the losses into a metrics.csv, and move it away")
    position, parts = _HEADER, list[bytes]()
    while position + _HEADER <= len(raw):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:  # no room for a piece: the next block
            position += left
            continue
        length, kind = int.from_bytes(raw[position + 4 : position + 6], "little"), raw[position + 6]
        begin = position + _HEADER
        if length > left - _HEADER or kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            raise ScanError(f"{path} is damaged at byte {position:,}. Copy it again, or remove it")
        if begin + length > len(raw):
            return
        parts = [] if kind in (_WHOLE, _FIRST) else parts
        parts.append(raw[begin : begin + length])
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)
        position = begin + length


def _history(raw: bytes) -> Iterator[tuple[int, str, float]]:
    """Record: history = 2; HistoryRecord: item = 1, step = 2; HistoryStep: num = 1."""
    for number, history in fields(raw):
        if number != 2 or not isinstance(history, bytes):
            continue
        found, step = dict[str, float](), None
        for field, value in fields(history):
            if field == 1 and isinstance(value, bytes):
                found |= dict(_item(value))
            elif field == 2 and isinstance(value, bytes):
                step = dict(fields(value)).get(1)
        step = found.pop("_step", step)
        if step is not None and float(step).is_integer() and step >= 0:
            yield from ((int(step), name, value) for name, value in found.items())


def _item(raw: bytes) -> Iterator[tuple[str, float]]:
    """HistoryItem: key = 1, nested_key = 2, integer = 5 (zigzag), number = 6, value_json = 16. Numbers only."""
    keys, found = list[str](), None
    for field, value in fields(raw):
        if field in (1, 2) and isinstance(value, bytes):
            keys.append(value.decode("utf-8"))
        elif field == 5 and isinstance(value, int):
            found = float((value >> 1) ^ -(value & 1))
        elif field == 6 and isinstance(value, float):
            found = value
        elif field == 16 and isinstance(value, bytes) and len(value) <= 64:
            with contextlib.suppress(ValueError):  # texts, lists and objects
                found = float(value)
    if found is not None and keys:
        yield "/".join(filter(None, keys)), found
