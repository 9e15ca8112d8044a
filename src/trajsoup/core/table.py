"""Things by name, in order: what the package offers, and what anybody adds to it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TypeVar

from trajsoup.errors import TrajsoupError

T = TypeVar("T")


class Table(Mapping[str, T]):
    """The one list of a kind of thing. A name is taken once; a name that nobody took is refused with all that are."""

    def __init__(self, what: str, *, error: type[TrajsoupError]) -> None:
        self.what = what
        self._error = error
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> None:
        """Take a name."""
        if name in self._items:
            raise self._error(f"there is a {self.what} {name!r} already: give the new one another name")
        self._items[name] = item

    def remove(self, name: str) -> None:
        """Give a name back."""
        del self._items[name]

    def find(self, name: str) -> T:
        """What has this name, or an error for the user."""
        if name not in self._items:
            raise self._error(self.unknown(name))
        return self._items[name]

    def unknown(self, name: str) -> str:
        """What to say of a name that nobody took."""
        near = difflib.get_close_matches(name, self._items, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"there is no {self.what} {name!r}: use {', '.join(self._items)}{meant}"

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
