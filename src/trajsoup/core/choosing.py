"""Choose by validation, and by nothing else: attach scores to candidates, pick the best of several models.

    ValidationScores -> pools with val_loss and accuracy -> (selection.py)
    ValidationScores of models -> the best one's name

Test scores are another type and are refused here, by the type checker and at run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trajsoup.core.pool import Pool
from trajsoup.core.scores import Per, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.errors import ScoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The best of several models, and what it was chosen on."""

    name: str
    rank_by: Signal
    score: float
    among: int  # how many had a finite score
    unusable: tuple[str, ...]  # scored NaN or infinity: reported, never chosen


def with_scores(
    pools: Sequence[Pool],
    scores: Mapping[str, ValidationScores],
    *,
    per: Per = Per.TOKEN,
    source_weights: Mapping[str, float] | None = None,
) -> tuple[Pool, ...]:
    """Return the pools with the validation loss and accuracy of every candidate that has scores, by key."""
    require_validation(scores)
    return tuple(
        Pool(
            branch=pool.branch,
            candidates=tuple(
                replace(
                    c,
                    val_loss=loss_of(scores[c.key], per=per, source_weights=source_weights),
                    accuracy=scores[c.key].overall_average,
                )
                if c.key in scores
                else c
                for c in pool.candidates
            ),
        )
        for pool in pools
    )


def choose(
    scores: Mapping[str, ValidationScores],
    *,
    rank_by: Signal = Signal.LOSS,
    per: Per = Per.TOKEN,
    source_weights: Mapping[str, float] | None = None,
) -> Winner:
    """Return the model with the best validation score. Ties go to the first in the mapping, simplest first."""
    require_validation(scores)
    if not scores:
        raise ScoreError("there is no model to choose from: score at least one")
    found: dict[str, float] = {}
    for name, score in scores.items():
        if rank_by is Signal.LOSS:
            value = loss_of(score, per=per, source_weights=source_weights)
        else:
            value = score.overall_average
        if value is None:
            raise ScoreError(f"{name} has no validation {rank_by.value}: score it, or choose by the other signal")
        found[name] = value
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    if not finite:
        raise ScoreError(
            f"all {len(found)} models scored NaN or infinity ({', '.join(list(found)[:3])}): none can be chosen"
        )
    best = min(finite, key=lambda name: finite[name] if rank_by is Signal.LOSS else -finite[name])
    unusable = tuple(name for name in found if name not in finite)
    return Winner(name=best, rank_by=rank_by, score=finite[best], among=len(finite), unusable=unusable)


def loss_of(
    scores: ValidationScores, *, per: Per = Per.TOKEN, source_weights: Mapping[str, float] | None = None
) -> float | None:
    """The validation loss, if there is one."""
    return None if scores.losses is None else scores.losses.loss(per=per, source_weights=source_weights)


def require_validation(scores: Mapping[str, ValidationScores]) -> None:
    """Refuse anything but validation scores, for callers without a type checker."""
    for name, score in scores.items():
        if type(score) is not ValidationScores:
            raise ScoreError(
                f"{name} comes with {type(score).__name__}, and choosing takes validation scores only: "
                "test scores are for the report"
            )
