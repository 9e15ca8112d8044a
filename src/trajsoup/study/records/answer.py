"""answer.json: what the study comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord(Record):
    """Which soup is best, by how much over the best single-trajectory merge at matched budget, on test."""

    FILE: ClassVar[str] = "answer"
    soup: str  # row, chosen on validation
    single: str  # row: the baseline's run of the same tokens, merged, K chosen on validation
    loss: ComparisonRecord | None  # None: there is no soup to compare
    accuracy: ComparisonRecord | None
    words: tuple[str, ...]  # what was seen, a sentence each, computed from the numbers
    soup_folder: str | None  # relative to the study
    seeds: tuple[int, ...]
    why_no_soup: str | None = None  # where there is none to compare
