"""Scalars in TensorBoard's event files, as torchtitan, Megatron and most trainers log them.

    events.out.tfevents.* -> records (length, checksum, bytes, checksum) -> protobuf messages -> rows of {tag: value} by step

The few fields that matter are read here: the package tensorboard is large, and a storage node has none. A last record that
is cut off is that of a run which still trains, or was killed, and is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from trajsoup.errors import ScanError
from trajsoup.store.remote import Place
from trajsoup.store.source import read_range

PATTERN = "events.out.tfevents"
MAX_FILE_BYTES = 1 << 30
_FLOAT, _DOUBLE = 1, 2  # DataType of a TensorProto


def read_event_files(paths: Sequence[Place]) -> list[tuple[int, dict[str, float]]]:
    """(step, {tag: value}) in the order of steps. Where a resumed run logged a step again, the later file counts."""
    rows: dict[int, dict[str, float]] = {}
    for path in sorted(paths, key=lambda path: path.name):
        for step, tag, value in _scalars(path):
            rows.setdefault(step, {})[tag] = value
    return sorted(rows.items())


def _scalars(path: Place) -> Iterator[tuple[int, str, float]]:
    for record in _records(path):
        try:
            yield from _event(record)
        except (IndexError, ValueError, struct.error) as error:
            raise ScanError(f"{path} is damaged: an event cannot be read. Copy it again, or remove it") from error


def _records(path: Place) -> Iterator[bytes]:
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ScanError(f"{path} has {size:,} bytes: write the losses into a metrics.csv, and move it away")
    raw = read_range(path, 0, size)
    position = 0
    while position + 16 <= len(raw):
        (length,) = struct.unpack_from("<Q", raw, position)
        if length > len(raw) - position - 16:
            return
        yield raw[position + 12 : position + 12 + length]
        position += 16 + length


def _event(raw: bytes) -> Iterator[tuple[int, str, float]]:
    """Event: step = 2, summary = 5; Summary: value = 1."""
    step, summaries = 0, list[bytes]()
    for number, value in fields(raw):
        if number == 2 and isinstance(value, int):
            step = value if value < 2**63 else value - 2**64
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            found = _value(value) if number == 1 and isinstance(value, bytes) else None
            if found is not None and step >= 0:
                yield (step, *found)


def _value(raw: bytes) -> tuple[str, float] | None:
    """Summary.Value: tag = 1, simple_value = 2, tensor = 8. None for pictures, texts and histograms."""
    tag, number = None, None
    for field, value in fields(raw):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8")
        elif field == 2 and isinstance(value, float):
            number = value
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return None if tag is None or number is None else (tag, number)


def _tensor(raw: bytes) -> float | None:
    """TensorProto of one number: dtype = 1, shape = 2, tensor_content = 4, float_val = 5, double_val = 6."""
    found = dict(fields(raw))
    kind = found.get(1)
    content = found.get(4) or found.get(5 if kind == _FLOAT else 6)
    if isinstance(content, float):
        return content
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind if isinstance(kind, int) else 0)
    if form is None or not isinstance(content, bytes) or len(content) != struct.calcsize(form):
        return None
    return struct.unpack(form, content)[0]


def fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: (number, integer, float or bytes)."""
    position = 0
    while position < len(raw):
        key, position = _varint(raw, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(raw, position)
            yield number, value
        elif kind in (1, 5):
            form = "<d" if kind == 1 else "<f"
            yield number, struct.unpack_from(form, raw, position)[0]
            position += struct.calcsize(form)
        elif kind == 2:
            length, position = _varint(raw, position)
            if length > len(raw) - position:
                raise ValueError("a field is longer than its message")
            yield number, raw[position : position + length]
            position += length
        else:
            raise ValueError(f"a field of the unknown kind {kind}")


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("a number without an end")
