"""JSON, in and out: typed data or one readable error; and text that every program can read.

bytes, a type -> msgspec -> data of that type        data -> json_text: NaN, which is not JSON, says null

Fields that a type does not have are passed over: newer and older files are read as far as they are known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from trajsoup.errors import CheckpointError, TrajsoupError
from trajsoup.store.regular import read_small
from trajsoup.store.remote import Place

T = TypeVar("T")
LONGEST = 308  # digits of a whole number that is still a float; tokenizers say 10^30 where they have no limit


def decode_json(
    data: bytes, kind: type[T], *, where: object, cure: str, error: type[TrajsoupError], nan: bool = False
) -> T:
    """The data as that type (dataclasses, enums, tuples ...). What does not fit is named, and `cure` says what to do.

    With `nan`, NaN and Infinity are numbers, as in the logs of Python programs.
    """
    try:
        if nan:
            found = json.loads(data.decode("utf-8-sig"), parse_int=_counted)
            if b"\\u" in data:  # an escape can spell half a surrogate pair, which nothing could write
                json.dumps(found, ensure_ascii=False).encode("utf-8")
            return msgspec.convert(found, type=kind)
        return msgspec.json.decode(data, type=kind, dec_hook=lambda kind, value: kind(value))  # paths
    except (msgspec.DecodeError, ValueError, RecursionError) as wrong:
        raise error(f"{where} is damaged ({' '.join(str(wrong).split()):.200}): {cure}") from wrong


def _counted(digits: str) -> int:
    if len(digits) > LONGEST:
        raise ValueError(f"{digits[:20]}... is too large for a number")
    return int(digits)


def read_json(path: Place, kind: type[T], *, cure: str, error: type[TrajsoupError], nan: bool = False) -> T:
    """What a file holds, as that type."""
    return decode_json(read_json_bytes(path, error=error), kind, where=path, cure=cure, error=error, nan=nan)


def read_json_bytes(path: Place, *, error: type[TrajsoupError]) -> bytes:
    """What a file holds, not decoded."""
    try:
        return read_small(path)
    except OSError as wrong:
        raise error(f"cannot read {path}: {wrong.strerror}: check the path and its permissions") from wrong


def load_json(path: Place) -> dict[str, Any]:
    """Read a JSON object."""
    return decode_object(read_json_bytes(path, error=CheckpointError), where=path)


def decode_object(data: bytes, *, where: object) -> dict[str, Any]:
    """A JSON object, as programs of any kind write it."""
    return decode_json(data, dict[str, Any], where=where, cure="copy or save it again", error=CheckpointError, nan=True)


def json_text(data: Any) -> str:
    """Indented JSON: NaN and infinities as null, whatever JSON does not know (paths) as text."""
    return json.dumps(plain(data), indent=2, default=str, allow_nan=False)


def plain(data: Any) -> Any:
    """The data with NaN and infinities as None."""
    match data:
        case float():
            return data if math.isfinite(data) else None
        case Mapping():
            return {key: plain(value) for key, value in data.items()}
        case list() | tuple():
            return [plain(value) for value in data]
        case _:
            return data
