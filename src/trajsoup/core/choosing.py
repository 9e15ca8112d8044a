"""Choose by validation, and by nothing else: the best of several models.

Test scores are another type and are refused here, by the type checker and at run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trajsoup.core.scores import ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.errors import ScoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The best of several models, and what it was chosen on."""

    name: str
    rank_by: Signal
    score: float
    among: int  # how many had a finite score


def choose(scores: Mapping[str, ValidationScores], *, rank_by: Signal = Signal.LOSS) -> Winner:
    """Return the model with the best validation score. Ties go to the first in the mapping, simplest first."""
    require_validation(scores)
    if not scores:
        raise ScoreError("there is no model to choose from: score at least one")
    found: dict[str, float] = {}
    for name, score in scores.items():
        value = loss_of(score) if rank_by is Signal.LOSS else score.overall_average
        if value is None:
            raise ScoreError(f"{name} has no validation {rank_by.value}: score it, or choose by the other signal")
        found[name] = value
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    if not finite:
        raise ScoreError(
            f"all {len(found)} models scored NaN or infinity ({', '.join(list(found)[:3])}): none can be chosen"
        )
    best = min(finite, key=lambda name: finite[name] if rank_by is Signal.LOSS else -finite[name])
    return Winner(name=best, rank_by=rank_by, score=finite[best], among=len(finite))


def loss_of(scores: ValidationScores) -> float | None:
    """The validation loss, if there is one."""
    return None if scores.losses is None else scores.losses.loss()


def require_validation(scores: Mapping[str, ValidationScores]) -> None:
    """Refuse anything but validation scores, for callers without a type checker."""
    for name, score in scores.items():
        if type(score) is not ValidationScores:
            raise ScoreError(
                f"{name} comes with {type(score).__name__}, and choosing takes validation scores only: "
                "test scores are for the report"
            )
