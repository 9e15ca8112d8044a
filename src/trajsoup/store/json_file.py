"""JSON, in and out: typed data or one readable error; and text that every program can read.

bytes, a type -> msgspec -> data of that type        data -> json_text: NaN, which is not JSON, says null
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from trajsoup.errors import CheckpointError, TrajsoupError
from trajsoup.store.remote import Place

T = TypeVar("T")


def decode_json(data: bytes, kind: type[T], *, where: object, cure: str, error: type[TrajsoupError]) -> T:
    """The data as that type (dataclasses, enums, tuples ...). What does not fit is named, and `cure` says what to do."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise error(f"{where} does not hold what it should ({wrong}): {cure}") from wrong


def load_json(path: Place) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}): copy or save it again") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}: check the path and its permissions") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is not a JSON object: copy or save it again")
    return data


def json_text(data: Any) -> str:
    """Indented JSON: NaN and infinities as null, whatever JSON does not know (paths) as text."""
    return json.dumps(_plain(data), indent=2, default=str, allow_nan=False)


def _plain(data: Any) -> Any:
    match data:
        case float():
            return data if math.isfinite(data) else None
        case Mapping():
            return {key: _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case _:
            return data
