"""Weights of the selected checkpoints inside one branch (app:merge-coefficients): one function each, one table.

    ordered candidates (tokens, scores, branch) -> weights        best first, or latest first: as they were selected

The paper's four look only at the place j = 1..K; others may look at tokens or scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trajsoup.core.pool import Candidate
from trajsoup.core.table import Table
from trajsoup.errors import SelectionError

Weigh = Callable[[Sequence[Candidate]], Sequence[float]]
EQUAL = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """A scheme of weights. They are scaled to sum to one."""

    name: str
    says: str  # in a few words
    reference: str  # label of the paper, or a citation
    weigh: Weigh
    swept: bool  # whether the sweep over coefficients takes it


WEIGHTINGS: Table[Weighting] = Table("weighting", error=SelectionError)


def weighting(
    *, name: str, says: str, reference: str = "app:merge-coefficients", swept: bool = True
) -> Callable[[Weigh], Weigh]:
    """Register a function of the ordered candidates as a weighting.

    >>> @weighting(name="halves", says="halves from one to the next", reference="me2026")  # doctest: +SKIP
    ... def halves(candidates): return [0.5**j for j in range(len(candidates))]
    """

    def register(weigh: Weigh) -> Weigh:
        WEIGHTINGS.add(name, Weighting(name=name, says=says, reference=reference, weigh=weigh, swept=swept))
        return weigh

    return register


def coefficients(scheme: str, candidates: Sequence[Candidate]) -> tuple[float, ...]:
    """Return the weights of the candidates in their order, summing to one."""
    raw = WEIGHTINGS.find(scheme).weigh(candidates)
    if len(raw) != len(candidates):
        raise SelectionError(f"weighting {scheme!r} gives {len(raw)} weights to {len(candidates)} checkpoints: mend it")
    total = math.fsum(raw)
    if not math.isfinite(total) or total == 0:
        raise SelectionError(f"weighting {scheme!r} gives weights that sum to {total:g}: they cannot be scaled to one")
    return tuple(value / total for value in raw)


@weighting(name=EQUAL, says="1/K")
def equal(candidates: Sequence[Candidate]) -> Sequence[float]:
    """A plain mean."""
    return [1.0] * len(candidates)


@weighting(name="1sqrt", says="sqrt(j): towards lower-ranked members")
def sqrt(candidates: Sequence[Candidate]) -> Sequence[float]:
    """Proportional to sqrt(j). Not the `1-sqrt` of a decay in time."""
    return [math.sqrt(j) for j in range(1, len(candidates) + 1)]


@weighting(name="rank", says="j: the same, steeper")
def rank(candidates: Sequence[Candidate]) -> Sequence[float]:
    """Proportional to j."""
    return [float(j) for j in range(1, len(candidates) + 1)]


@weighting(name="rsqrt", says="1/sqrt(j): towards the best")
def rsqrt(candidates: Sequence[Candidate]) -> Sequence[float]:
    """Proportional to 1/sqrt(j)."""
    return [1 / math.sqrt(j) for j in range(1, len(candidates) + 1)]
