"""JSON that every program can read. Python alone would write NaN, which is not JSON: a loss that diverged says null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


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
