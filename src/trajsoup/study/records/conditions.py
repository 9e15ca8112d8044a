"""conditions.json: whether the paper's question can be asked of this study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must be so before a soup of this study says anything, and whether it is."""

    name: str
    question: str
    wanted: str
    measured: str
    value: float | None  # None: could not be measured, `measured` says why
    met: bool | None
    comparisons: tuple[ComparisonRecord, ...] = ()  # that it was measured by


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsRecord(Record):
    """Whether the paper's question can be asked of this study."""

    FILE: ClassVar[str] = "conditions"
    conditions: tuple[Condition, ...]
