"""allocation.json: how an adaptive study gave its tokens to branches, decision by decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trajsoup.core.adaptive import Decision
from trajsoup.study.records.files import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRecord(Record):
    """Every look, what was decided and why; the branches that are left are those of train.json."""

    FILE: ClassVar[str] = "allocation"
    budget: int  # tokens of all branches together
    spent: int
    positions: tuple[int, ...]  # of the looks
    decisions: tuple[Decision, ...]
    live: tuple[str, ...]
    tokens: int  # of each of them
    trained: Mapping[str, int]  # branch -> tokens paid for it: of those that are left more, where the study went back
    stopped: tuple[str, ...]
    lost: Mapping[str, str]  # branch -> why it did not get on
    waiting: tuple[str, ...]  # never opened
