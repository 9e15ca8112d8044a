"""The key `retention` of a study file."""

from __future__ import annotations

from typing import Any

from trajsoup.core.retention import Retention
from trajsoup.errors import StudyError
from trajsoup.store.yaml_file import check_keys

RETENTION_FIELDS = {
    "top_k": "Best checkpoints of each branch by validation that stay.",
    "every_nth": "Besides, every n-th checkpoint of each branch stays. Default: none for that reason.",
    "last": "Besides, the last checkpoint of each branch stays. Default true.",
}


def parse_retention(data: Any, *, where: str) -> Retention | None:
    """Read `retention`; None where nothing is pruned."""
    if data is None:
        return None
    check_keys(data, tuple(RETENTION_FIELDS), where=where)
    for name in ("top_k", "every_nth"):
        value = data.get(name)
        if (value is None and name == "top_k") or (value is not None and type(value) is not int):
            raise StudyError(f"{where}: {name} is {value!r}: write a whole number. {RETENTION_FIELDS[name]}")
    if type(data.get("last", True)) is not bool:
        raise StudyError(f"{where}: last is {data['last']!r}: write true or false")
    return Retention(top_k=data["top_k"], every_nth=data.get("every_nth"), last=data.get("last", True))
