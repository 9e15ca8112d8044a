"""screen.json: who is admitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.screening import ScreenedAt, Verdict
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenRecord(Record):
    """The compatibility screen."""

    FILE: ClassVar[str] = "screen"
    baseline: str
    tolerance: float
    measured_on: str  # probe of training documents, or logged training loss
    verdicts: tuple[Verdict, ...]  # at the full horizon
    early: tuple[ScreenedAt, ...] = ()  # at every saved position: who may enter a soup whose branches stop there
