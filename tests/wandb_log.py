"""`run-ID.wandb` as W&B writes it, without W&B: tests/peers compares with a real one."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BLOCK = 32 << 10


def write_wandb(path: Path, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    out = bytearray(b":W&B\xe1\xbe\x00")
    for number, (step, row) in enumerate(rows, start=1):
        items = b"".join(_item(name, value) for name, value in {**row, "_step": step}.items())
        history = items + _message(2, _varint(8) + _varint(step))
        _append(out, _varint(8) + _varint(number) + _message(2, history))
    path.write_bytes(out)
    return path


def _item(name: str, value: Any) -> bytes:
    keys = (
        b"".join(_message(2, part.encode()) for part in name.split(".")) if "." in name else _message(1, name.encode())
    )
    return _message(1, keys + _message(16, json.dumps(value).encode()))


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _append(out: bytearray, record: bytes) -> None:
    first = True
    while True:
        left = BLOCK - len(out) % BLOCK
        if left < 7:
            out += bytes(left)
            continue
        part, record = record[: left - 7], record[left - 7 :]
        kind = (1 if first else 4) if not record else (2 if first else 3)
        out += struct.pack("<LHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
        first = False
        if not record:
            return
