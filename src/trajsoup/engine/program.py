"""Rows of W as a list of steps that share their common beginnings.

Rows of a sweep overlap: N = 1, 2, 3 branches at the same K are beginnings of each other. Laid out as a tree, each
shared beginning is summed once. Every row is still summed in the one order of the ingredients, from the first to the
last, so sharing changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Member = tuple[int, float]  # ingredient, factor


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in order. A step starts from nothing or from an accumulator, adds its members, and may finish rows."""

    fresh: NDArray[np.bool_]  # does the step start from nothing?
    source: NDArray[np.int32]  # the accumulator it starts from otherwise
    target: NDArray[np.int32]  # the accumulator it leaves its sum in
    first: NDArray[np.int32]  # members[first:last] are added
    last: NDArray[np.int32]
    members: NDArray[np.int32]
    used: NDArray[np.int32]  # each member once
    factors: NDArray[np.float64]
    emit_first: NDArray[np.int32]  # rows[emit_first:emit_last] end here
    emit_last: NDArray[np.int32]
    rows: NDArray[np.int32]
    leaf: NDArray[np.bool_]  # does no step go on from here?
    divisors: NDArray[np.float64]  # by row: the sum is divided once, at the end
    accumulators: int


Bits = NDArray[Any]
Kernel = Callable[[Bits, NDArray[np.int64], int, Program, Bits], bool]  # kernels.py says what it computes


def compile_rows(rows: Mapping[int, Sequence[Member]], *, divisors: NDArray[np.float64]) -> Program:
    """Arrange rows, by number, each a sequence of members in rising order of ingredient, into shared steps."""
    fresh: list[bool] = []
    source: list[int] = []
    target: list[int] = []
    spans: list[tuple[int, int]] = []
    emits: list[tuple[int, int]] = []
    leaf: list[bool] = []
    members: list[Member] = []
    finished: list[int] = []
    depth = 0

    def grow(group: list[int], start: int, level: int) -> None:
        """Add the steps of all rows in `group`, which agree before position `start`."""
        nonlocal depth
        while group:
            head = rows[group[0]][start]
            together = [r for r in group if rows[r][start] == head]
            group = [r for r in group if rows[r][start] != head]
            end = _common_end([rows[r] for r in together], start)
            done = [r for r in together if len(rows[r]) == end]
            fresh.append(start == 0)
            source.append(max(level - 1, 0))
            target.append(level)
            spans.append((len(members), len(members) + end - start))
            members.extend(rows[together[0]][start:end])
            emits.append((len(finished), len(finished) + len(done)))
            finished.extend(done)
            leaf.append(len(done) == len(together))
            depth = max(depth, level + 1)
            grow([r for r in together if len(rows[r]) > end], end, level + 1)

    grow(list(rows), 0, 0)
    return Program(
        fresh=np.array(fresh, np.bool_),
        source=np.array(source, np.int32),
        target=np.array(target, np.int32),
        first=np.array([a for a, _ in spans], np.int32),
        last=np.array([b for _, b in spans], np.int32),
        members=np.array([i for i, _ in members], np.int32),
        used=np.unique(np.array([i for i, _ in members], np.int32)),
        factors=np.array([factor for _, factor in members], np.float64),
        emit_first=np.array([a for a, _ in emits], np.int32),
        emit_last=np.array([b for _, b in emits], np.int32),
        rows=np.array(finished, np.int32),
        leaf=np.array(leaf, np.bool_),
        divisors=divisors,
        accumulators=max(depth, 1),
    )


def _common_end(rows: Sequence[Sequence[Member]], start: int) -> int:
    end = start
    shortest = min(len(row) for row in rows)
    while end < shortest and all(row[end] == rows[0][end] for row in rows):
        end += 1
    return end
