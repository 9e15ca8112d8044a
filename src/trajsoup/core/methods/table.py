"""The one table of methods: what each is called, what it spends, and the function that it is.

    @method(name="mine", label="Mine", reference="me2026", scope=Scope.SEVERAL)
    def mine(freedom: Freedom) -> Asking: ...

`merge`, the main table of a study, its sweeps, the docs and the report read this table and no other list.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trajsoup.core.methods.asking import Asking, Decision
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.parameters import Parameter, parameters_of, read_parameters
from trajsoup.core.table import Table
from trajsoup.errors import SelectionError

Function = Callable[
    ..., Asking | Decision
]  # of a Freedom and its own parameters; one that asks nothing may just return


class Scope(StrEnum):
    """Whose tokens a method spends: the budget rule of sec:setup."""

    BASELINE = "baseline"  # the baseline's branch as it is
    ONE = "one"  # one branch of T tokens, whichever is best
    SEVERAL = "several"  # N branches: of T/N each (Limited), or of t each (Extended)
    EITHER = "either"  # one branch, or the mean of what it makes of each of N


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Rows of a method applied to every branch by itself."""

    name: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way to choose a row of W."""

    name: str
    label: str  # as tables print it
    reference: str  # label of the paper, or a citation
    scope: Scope
    function: Function
    select: str | None  # the selection that defines it; None: it has none
    selects: tuple[str, ...]  # others that it can be combined with
    takes_k: bool
    takes_weights: bool  # whether a weighting means something to it
    takes_window: bool  # whether it looks at the end of a branch, as long as one says
    parameters: tuple[Parameter, ...]
    strategy: str  # as records call it
    alone: Alone | None
    default: bool  # whether every study's main table shows it; else those that name it

    @property
    def says(self) -> str:
        """The first line of its documentation."""
        return (inspect.getdoc(self.function) or self.label).partition("\n")[0]

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All its parameters, those that are given and the defaults; what cannot be read is refused."""
        return read_parameters(self.parameters, given, method=self.name)

    def ask(self, freedom: Freedom, **settings: Any) -> Asking:
        """Start it. The generator chooses a row."""
        found = self.function(freedom, **settings)
        return (yield from found) if isinstance(found, Generator) else found


METHODS: Table[Method] = Table("method", error=SelectionError)


def method(
    *,
    name: str,
    label: str,
    reference: str,
    scope: Scope,
    select: str | None = None,
    selects: tuple[str, ...] = (),
    takes_k: bool = False,
    takes_weights: bool = False,
    takes_window: bool = False,
    strategy: str | None = None,
    alone: Alone | None = None,
    default: bool = True,
) -> Callable[[Function], Function]:
    """Register a function as a method.

    >>> @method(name="mine", label="Mine", reference="me2026", scope=Scope.SEVERAL)  # doctest: +SKIP
    ... def mine(freedom: Freedom) -> Asking: ...
    """

    def register(function: Function) -> Function:
        found = Method(
            name=name,
            label=label,
            reference=reference,
            scope=scope,
            function=function,
            select=select,
            selects=selects,
            takes_k=takes_k,
            takes_weights=takes_weights,
            takes_window=takes_window,
            parameters=parameters_of(function),
            strategy=strategy or name,
            alone=alone,
            default=default,
        )
        METHODS.add(name, found)
        return function

    return register
