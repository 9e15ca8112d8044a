"""What a part of the page is: figures with captions, and tables.

records -> (sections/<name>.py) -> Section -> (page.py) -> HTML
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trajsoup.report.table import Table
from trajsoup.study.records.files import Records

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A figure of the page."""

    name: str  # of its file and its element
    title: str
    says: str  # what to see in it, computed from this study's numbers; plain text, the page escapes it
    draw: Callable[[], Figure]  # needs plotly; tables and words do not
    wide: bool = False  # takes the whole width of the page

    def spec(self) -> dict[str, Any]:
        """What plotly.js draws; plotly's default template is left out, since the page sets colours itself."""
        plain = self.draw().to_plotly_json()
        plain["layout"].pop("template", None)
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one part of the page shows."""

    figures: tuple[Drawn, ...] = ()
    tables: tuple[Table, ...] = ()  # before the figures
    more: tuple[Table, ...] = ()  # after them
    numbers: tuple[Table, ...] = ()  # behind figures that show the same: folded until asked for
    commands: tuple[str, ...] = ()  # to copy

    @property
    def every_table(self) -> tuple[Table, ...]:
        """All tables, in order."""
        return (*self.tables, *self.more, *self.numbers)

    def filled(self) -> Section:
        """Two figures stand side by side; one that would stand alone takes the whole line."""
        narrow = [f for f in self.figures if not f.wide]
        if len(narrow) % 2 == 0:
            return self
        return replace(self, figures=tuple(replace(f, wide=True) if f is narrow[-1] else f for f in self.figures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the table of sections."""

    name: str  # of its element
    title: str
    make: Callable[[Records], Section | None]  # None: the study has no record of it
    missing: str  # what the page says then


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A section in its place on the page."""

    entry: Entry
    section: Section | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but the sentence that says so."""
        return not (self.content.figures or self.content.every_table or self.content.commands)

    @property
    def content(self) -> Section:
        """What it shows: nothing where it is missing."""
        return self.section or Section()
