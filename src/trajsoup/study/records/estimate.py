"""Numbers that several records hold: with an interval, along a fitted line, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Shares = Mapping[str, float | None]  # scores by name; None: NaN, of a model that diverged


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its bootstrap interval over documents or items; no bounds where none was computed."""

    value: float | None  # None: NaN or infinite, a model that diverged
    low: float | None = None
    high: float | None = None
    count: int  # documents or items


@dataclass(frozen=True, slots=True, kw_only=True)
class BandPoint:
    """A point of a fitted line, with the bounds of its band where there is one."""

    x: float
    y: float
    low: float | None
    high: float | None
