"""Will these branches average well? What distances and cosines say, in words.

Branches of one fork point lie close together: their weights point almost the same way, and the straight line between
them stays in one basin. Runs from different initialisations are nearly orthogonal in every matrix, however similar their
losses, and their average is noise. Norm gains and biases would hide that (they start equal everywhere), so only tensors
with two or more dimensions are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SHARED_COSINE = 0.9  # of the weights themselves; mid-training branches usually stay above 0.99
UNRELATED_COSINE = 0.5  # independent initialisations lie near 0
FAR = 0.3  # relative distance from the baseline at which averaging becomes a gamble


class Outlook(StrEnum):
    """What to expect of averaging a branch with the baseline."""

    GOOD = "averages well"
    REFERENCE = "reference"  # the others are compared with it
    DOUBTFUL = "doubtful"
    BAD = "leave it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How the last checkpoint of a branch lies to the baseline's (or to the fork point, if it is known)."""

    cosine: float  # of the matrices' weights
    relative_distance: float  # |x - y| / |y|
    displacement_cosine: float | None = None  # of the ways both went; None where a branch has not moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The outlook and the reason, for people."""

    outlook: Outlook
    reason: str


def judge(closeness: Closeness, *, reference: str) -> Judgement:
    """Turn closeness to `reference` ("the fork point", "baseline EXP1") into a judgement."""
    c = closeness
    if c.cosine < UNRELATED_COSINE:
        return Judgement(
            outlook=Outlook.BAD,
            reason=f"shares no fork point with {reference}: their weights have cosine {c.cosine:.2f}, where branches of "
            f"one fork point have more than {SHARED_COSINE}",
        )
    if c.cosine < SHARED_COSINE or c.relative_distance > FAR:
        return Judgement(
            outlook=Outlook.DOUBTFUL,
            reason=f"far from {reference} (cosine {c.cosine:.3f}, relative distance {c.relative_distance:.2g}): score the "
            "soup before trusting it",
        )
    return Judgement(
        outlook=Outlook.GOOD,
        reason=f"same basin as {reference} (cosine {c.cosine:.4f}, relative distance {c.relative_distance:.2g})",
    )
