"""YAML files that people write: safe to load, and kind about typing errors."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trajsoup.errors import StudyError
from trajsoup.store.regular import read_small

MAX_BYTES = 16 << 20
LARGEST = 2**64  # no count of a study is beyond it


class _PlainLoader(yaml.SafeLoader):
    """Plain data only: no tags, no anchors (which can expand without bound), no key given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.constructor.ConstructorError(None, None, "anchors and aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = self.construct_object(key_node, deep=True)
            try:
                if key in seen:
                    raise _wrong(f"{key!r:.100} is given twice", node)
                seen.add(key)
            except TypeError:
                raise _wrong("a list or mapping cannot be a key", key_node) from None
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            made = super().construct_object(node, deep=deep)
            if isinstance(made, str):
                made.encode("utf-8")  # an escape can spell half a surrogate pair, which nothing could write
        except (ValueError, OverflowError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise _wrong(
                f"{node.value!r:.60} is not what it looks like ({' '.join(str(error).split()):.100})", node
            ) from error
        if isinstance(made, int) and abs(made) >= LARGEST:
            raise _wrong("a number this large means nothing in such a file", node)
        return made


def _wrong(what: str, node: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping."""
    try:
        return decode_yaml(read_small(path, limit=MAX_BYTES), where=path)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise StudyError(f"{path} has more than {MAX_BYTES:,} bytes: that is not a study or soup file") from error
        raise StudyError(f"cannot read {path}: {error.strerror}: check the path") from error


def decode_yaml(text: bytes | str, *, where: object) -> dict[str, Any]:
    """The mapping that a YAML text holds."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        data = yaml.load(text, _PlainLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise StudyError(f"{where} is not valid: {_what(error)}") from error
    if not isinstance(data, dict):
        raise StudyError(f"{where} does not hold `key: value` lines: see docs/cli.md for what it should look like")
    return data


def _what(error: Exception) -> str:
    """Where a file stops being YAML, why, and what to do."""
    match error:
        case yaml.MarkedYAMLError(problem_mark=mark) if mark is not None:
            why = error.problem or error.context or "syntax error"
            cure = (
                "mend the line (or the one before it): indent with spaces, close brackets, quote text that holds `: `"
            )
            return f"line {mark.line + 1}, column {mark.column + 1}: {' '.join(why.split())}: {cure}"
        case RecursionError():
            return "it is nested too deeply: a study or soup file has a few levels"
        case UnicodeDecodeError():
            return f"{error.reason} at byte {error.start}: save it as UTF-8 text"
        case _:
            return f"{' '.join(str(error).split())}: save it as plain UTF-8 text"


def check_keys(data: Any, known: Sequence[str], *, where: object, misplaced: Mapping[str, str] | None = None) -> None:
    """Refuse a mapping with an unknown key and suggest the nearest known one."""
    if not isinstance(data, dict):
        raise StudyError(f"{where}: expected `key: value` lines, got {data!r:.100}")
    for key in data:
        if key in known:
            continue
        if misplaced and key in misplaced:
            raise StudyError(f"{where}: {key!r} {misplaced[key]}")
        near = difflib.get_close_matches(str(key), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        raise StudyError(f"{where}: unknown key {key!r:.100}: {hint}")
