"""Names and texts that others wrote, as they are shown: no escape sequence reaches a terminal, no line is broken by a name.

Control characters, marks that turn the direction of a line, and bytes of a file name that are no UTF-8 are spelled out.
"""

from __future__ import annotations

import re

from trajsoup.errors import cut

_TURNS = "\u202a-\u202e\u2066-\u2069"
_ACTIVE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_TURNS}\ud800-\udfff]")
_IN_LINE = re.compile("[\t\n]")


def shown(text: str) -> str:
    """A text of several lines."""
    return _ACTIVE.sub(_spelled, text)


def shown_name(text: str) -> str:
    """A name, or another text of one line."""
    return _IN_LINE.sub(_spelled, shown(text))


def shown_message(error: object) -> str:
    """What an error says, cut where a value in it is endless."""
    return cut(shown(str(error)))


def is_plain(name: str) -> bool:
    """Whether a name is shown as it is."""
    return shown_name(name) == name


def _spelled(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")
