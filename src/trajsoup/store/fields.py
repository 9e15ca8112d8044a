"""A file that people write, by its declaration: one dataclass field for each field of the file.

    @dataclass(frozen=True, kw_only=True)
    class Screen:
        tolerance: Annotated[float, "Largest loss gap to the baseline."] = 0.01

    load_yaml(path) -> read(Screen, data, where=At(path)) -> a Screen, or one StudyError: place, value, remedy

A field with a help text is a field of the file; any other is not. How it is read follows from its type: a dataclass has
`key: value` lines, a mapping names them, a quantity (core/quantity.py) is read by the function in its Annotated, where
`Key`, `ChangesOf` and `Shapes` may stand too. Null is as good as left out. docs/study-file.md is made from the same.

A dataclass may say more: `spelled_out(value)` turns a shorter form into its `key: value` lines, `MISPLACED` answers keys
that people try here, `require_used(given)` refuses fields that would do nothing, __post_init__ what does not fit together.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from trajsoup.core.quantity import parse_number, parse_whole
from trajsoup.errors import StudyError, TrajsoupError
from trajsoup.store.remote import Place, RemotePath, place
from trajsoup.store.yaml_file import check_keys

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a field in the file, where it is not that of the attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class ChangesOf:
    """Each entry of a mapping says only what it changes in the value of this field beside it."""

    field: str


@dataclass(frozen=True, slots=True)
class Shapes:
    """For which values a field shapes results, and so is part of the study's digest. Without it: for all."""

    when: typing.Callable[[Any], bool]


NO_RESULTS = Shapes(lambda value: False)
MAY_BE_EMPTY = object()  # `sft:` with nothing after it asks for the defaults, and is not left out


@dataclass(frozen=True, slots=True)
class At:
    """A place in a file, as messages name it: `study.yaml: evaluate: ks`."""

    place: object
    folder: Path = field(default_factory=Path)  # relative paths start here

    def __str__(self) -> str:
        return str(self.place)

    def below(self, name: object) -> At:
        """A field or an entry of what stands here."""
        return At(f"{self.place}: {name}", self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One field of a file."""

    name: str  # of the attribute
    key: str  # in the file
    hint: Any
    marks: tuple[Any, ...]
    help: str
    default: Any  # MISSING: it must be given


@functools.cache
def declared(kind: type) -> tuple[Declared, ...]:
    """The fields of the file that this dataclass declares, in order."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found: list[Declared] = []
    for item in dataclasses.fields(kind):
        hint, marks = _unwrapped(hints[item.name])
        help_text = next((mark for mark in marks if isinstance(mark, str)), None)
        if help_text is None:
            continue
        key = next((mark.name for mark in marks if isinstance(mark, Key)), item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        found.append(Declared(name=item.name, key=key, hint=hint, marks=marks, help=help_text, default=default))
    return tuple(found)


def shaping(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that shape results."""
    marks = _marks(type(value))
    later = getattr(value, "LATER", ())  # fields that came later shape nothing where nobody set them
    items = (i for i in dataclasses.fields(value) if i.name not in later or getattr(value, i.name) != i.default)
    found = {item.name: getattr(value, item.name) for item in items}
    return {n: v for n, v in found.items() if all(m.when(v) for m in marks[n] if isinstance(m, Shapes))}


@functools.cache
def _marks(kind: type) -> dict[str, tuple[Any, ...]]:
    return {name: _unwrapped(hint)[1] for name, hint in typing.get_type_hints(kind, include_extras=True).items()}


def read(kind: type[T], data: Any, *, where: At, base: T | None = None, **given: Any) -> T:
    """A `kind` from the `key: value` lines that a file holds for it; `given` are its fields that no file has.

    Fields left out have their value in `base`, or else their default.
    """
    if hasattr(kind, "spelled_out"):
        data = kind.spelled_out(data)  # type: ignore[attr-defined]
    fields = declared(kind)
    check_keys(data, [f.key for f in fields], where=where, misplaced=getattr(kind, "MISPLACED", {}))
    values: dict[str, Any] = dict(given)
    for f in fields:
        default = f.default if base is None else getattr(base, f.name)
        value = data.get(f.key)
        if value is None and not (MAY_BE_EMPTY in f.marks and f.key in data):
            if default is MISSING:
                raise StudyError(f"{where}: `{f.key}` is missing: {f.help}")
            values[f.name] = default
            continue
        before = next((values[mark.field] for mark in f.marks if isinstance(mark, ChangesOf)), default)
        values[f.name] = _value(f.hint, f.marks, value, where.below(f.key), before)
    try:
        made = kind(**values) if base is None else dataclasses.replace(base, **values)  # type: ignore[type-var]
        if hasattr(made, "require_used"):
            made.require_used(data)  # type: ignore[attr-defined]
    except TrajsoupError as error:
        raise type(error)(f"{where}: {error}") from error
    return made


def parse_name(value: object, *, where: object) -> str:
    """Read a name; a number is one too."""
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    raise StudyError(f"{where} is {value!r:.100}: write a name")


def parse_place(value: object, *, where: object) -> Place:
    """Read a path or a URL as it is written, relative to nothing."""
    return place(parse_name(value, where=where))


def parse_place_beside(value: object, *, where: At) -> Place:
    """Read a URL, or a path relative to the file."""
    return place_below(where.folder, parse_place(value, where=where))


def place_below(base: Place, found: Place) -> Place:
    """A place that was written relative to `base`."""
    if isinstance(found, RemotePath):
        return found
    return base / found if isinstance(base, RemotePath) else Path(os.path.normpath(base / found))


Name = typing.Annotated[str, parse_name]
PlaceBeside = typing.Annotated[Place, parse_place_beside]


def _value(hint: Any, marks: Sequence[Any], value: Any, where: At, before: Any) -> Any:
    """One value of the type; `before` is what stands in its place without it."""
    for reader in marks:
        if isinstance(reader, types.FunctionType | functools.partial):
            return reader(value, where=where)
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    match typing.get_origin(hint):
        case typing.Union | types.UnionType:
            return _unwrapped_value(kinds[0], value, where, before)
        case origin if origin is tuple:
            return tuple(_items(kinds[0], value, where))
        case origin if origin is Mapping:
            if not isinstance(value, dict):
                raise StudyError(f"{where} is {value!r:.100}: write `name: value` pairs")
            inner = {str(name): (item, where.below(name)) for name, item in value.items()}
            return {name: _unwrapped_value(kinds[1], item, at, before) for name, (item, at) in inner.items()}
        case origin if origin is Literal:
            return _choice(kinds, value, where)
        case _:
            return _plain(hint, value, where, before)


def _plain(hint: Any, value: Any, where: At, before: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return read(hint, {} if value is None else value, where=where, base=before if type(before) is hint else None)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(_choice(list(hint), value, where))
    if hint is Path:
        return where.folder / parse_name(value, where=where)
    if hint is float:
        return parse_number(value, where=where)
    if hint is int:
        return parse_whole(value, where=where)
    if hint is bool and not isinstance(value, bool):
        raise StudyError(f"{where} is {value!r:.100}: use true or false")
    if hint is str and not isinstance(value, str):
        raise StudyError(f"{where} is {value!r:.100}: write it as text")
    return value


def _unwrapped_value(hint: Any, value: Any, where: At, before: Any) -> Any:
    return _value(*_unwrapped(hint), value, where, before)


def _items(hint: Any, value: Any, where: At) -> list[Any]:
    """The entries of a list. A lone value is a list of one, `none` an empty one."""
    holds_lines = dataclasses.is_dataclass(_unwrapped(hint)[0])
    if not isinstance(value, list):
        if holds_lines or isinstance(value, dict):
            raise StudyError(f"{where} is {value!r:.100}: write a list")
        value = [] if value == "none" else [value]
    places = [At(f"{where}, number {i}", where.folder) if holds_lines else where for i in range(1, len(value) + 1)]
    return [_unwrapped_value(hint, item, place, None) for item, place in zip(value, places, strict=True)]


def _choice(known: Sequence[Any], value: Any, where: At) -> Any:
    if value not in known:
        raise StudyError(f"{where} is {value!r:.100}: use {', '.join(map(str, known[:-1]))} or {known[-1]}")
    return value


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(hint) is typing.Annotated:
        kind, *marks = typing.get_args(hint)
        return kind, tuple(marks)
    return hint, ()
