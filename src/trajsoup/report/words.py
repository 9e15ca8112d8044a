"""Words that captions share."""

from __future__ import annotations

from collections.abc import Sequence

SAME = 5e-5  # what four decimals cannot show


def joined(names: Sequence[str]) -> str:
    """A, B and C."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def counted(number: int, one: str, many: str) -> str:
    """1 branch, 2 branches."""
    return f"{number:,} {one if number == 1 else many}"
