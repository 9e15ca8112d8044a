"""Parameters of a method: the keyword-only arguments of its function, declared there and nowhere else.

    def pma(freedom: Freedom, *, alpha: Annotated[Share, "Weight of the newest checkpoint."] = 0.2) -> Asking: ...

`merge --param alpha=0.1`, `--help`, the docs and soup.json read the declaration. How a value is read follows from its
type, as in files (core/quantity.py); a Literal names the values that there are.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trajsoup.core.quantity import format_tokens, parse_number, parse_whole
from trajsoup.errors import SelectionError, StudyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a method."""

    name: str
    says: str
    default: Any  # None: the method does without
    choices: tuple[str, ...]  # empty: any value that can be read
    read: Callable[..., Any]

    def __str__(self) -> str:
        """As it is written: alpha=0.2, kind=sma|wma|ema."""
        default = "" if self.default is None else self.default
        if isinstance(default, int) and default >= 100_000:
            default = format_tokens(default)
        return f"{self.name}={'|'.join(self.choices) or default}"


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """What a function declares, in order."""
    arguments = inspect.signature(function).parameters.values()
    own = [argument for argument in arguments if argument.kind is inspect.Parameter.KEYWORD_ONLY]
    only = types.SimpleNamespace(__annotations__={argument.name: argument.annotation for argument in own})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    hints = typing.get_type_hints(only, globalns=names, include_extras=True)
    return tuple(_parameter(argument.name, hints[argument.name], argument.default) for argument in own)


def read_parameters(declared: tuple[Parameter, ...], given: Mapping[str, Any], *, method: str) -> dict[str, Any]:
    """Every parameter with its value: as given, or the default. One that nobody declared is refused."""
    known = {parameter.name: parameter for parameter in declared}
    for name in given:
        if name not in known:
            have = f"its parameters are {', '.join(known)}" if known else "it has none"
            raise SelectionError(f"{method} has no parameter {name!r}: {have}")
    try:
        return {
            p.name: p.read(given[p.name], where=f"parameter {p.name} of {method}") if p.name in given else p.default
            for p in declared
        }
    except StudyError as error:
        raise SelectionError(str(error)) from error


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    marks: tuple[Any, ...] = ()
    while typing.get_origin(hint) in (typing.Annotated, typing.Union, types.UnionType):
        if typing.get_origin(hint) is typing.Annotated:
            marks += hint.__metadata__
            hint = hint.__origin__
        else:
            hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    choices = tuple(map(str, typing.get_args(hint))) if typing.get_origin(hint) is Literal else ()
    readers: list[Callable[..., Any]] = [
        mark for mark in marks if isinstance(mark, types.FunctionType | functools.partial)
    ]
    plain = functools.partial(_choice, choices) if choices else parse_whole if hint is int else parse_number
    return Parameter(
        name=name,
        says=next(mark for mark in marks if isinstance(mark, str)),
        default=default,
        choices=choices,
        read=readers[0] if readers else plain,
    )


def _choice(choices: tuple[str, ...], value: object, *, where: object) -> str:
    if value not in choices:
        raise StudyError(f"{where} is {value!r}: use {', '.join(choices[:-1])} or {choices[-1]}")
    return str(value)
