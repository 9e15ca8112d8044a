"""The learning rate as a pure function of tokens (app:training-config, tab:branch-mapping).

`tokens` is what the branch has consumed *after* the step that uses the rate: the warmup then never wastes a step at
rate 0, the last step gets exactly the floor, and branches of different batch size agree wherever their tokens do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from trajsoup.core.quantity import Share
from trajsoup.errors import RecipeError


class Shape(StrEnum):
    """What happens after the warmup."""

    CONSTANT = "constant"  # the paper's baseline
    LINEAR = "linear"  # to the floor at the horizon; the paper's "decay to", whose shape it leaves open
    COSINE = "cosine"  # half a cosine to the floor at the horizon
    WSD = "wsd"  # warmup, stable, then linear to the floor over the last `decay_share` of the horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A shape and its floor."""

    shape: Annotated[Shape, "constant, linear, cosine or wsd. With a decay_to alone: linear."] = Shape.CONSTANT
    decay_to: Annotated[float, "Learning rate at the horizon; unused by constant."] = 0.0
    decay_share: Annotated[Share, "Share of the horizon over which wsd decays."] = 0.2

    @staticmethod
    def spelled_out(value: Any) -> Any:
        """A shape alone is a schedule; a floor alone is the paper's "decay to", whose shape we take as linear.

        A schedule is written whole: nothing of the one that it replaces stays.
        """
        whole = {"shape": Shape.LINEAR.value, "decay_to": 0.0, "decay_share": 0.2}
        match value:
            case {**given}:
                return {**whole, **given}
            case _:
                return {**whole, "shape": value}

    def __post_init__(self) -> None:
        if not (math.isfinite(self.decay_to) and self.decay_to >= 0):
            raise RecipeError(f"decay_to is {self.decay_to:g}: use a learning rate of 0 or more")
        if not 0 < self.decay_share <= 1:
            raise RecipeError(f"decay_share is {self.decay_share:g}: use a share above 0 and up to 1")

    def describe(self) -> str:
        """As the paper's table of branches words it."""
        match self.shape:
            case Shape.CONSTANT:
                return "constant"
            case Shape.WSD:
                return f"stable, last {self.decay_share:.3g} decays to {self.decay_to:g}"
            case _:
                return f"{self.shape.value} decay to {self.decay_to:g}"


def learning_rate(schedule: Schedule, *, tokens: int, peak_lr: float, warmup_tokens: int, horizon: int) -> float:
    """Return the rate of the step that brings the branch to `tokens`."""
    if tokens < warmup_tokens:
        return peak_lr * tokens / warmup_tokens
    floor = schedule.decay_to
    match schedule.shape:
        case Shape.CONSTANT:
            return peak_lr
        case Shape.LINEAR:
            return floor + (peak_lr - floor) * (1 - _progress(tokens, start=warmup_tokens, end=horizon))
        case Shape.COSINE:
            turn = math.cos(math.pi * _progress(tokens, start=warmup_tokens, end=horizon))
            return floor + (peak_lr - floor) * (1 + turn) / 2
        case Shape.WSD:
            start = max(round(horizon * (1 - schedule.decay_share)), warmup_tokens)
            return floor + (peak_lr - floor) * (1 - _progress(tokens, start=start, end=horizon))


def _progress(tokens: int, *, start: int, end: int) -> float:
    """How much of [start, end] is behind, from 0 to 1."""
    return min(max((tokens - start) / (end - start), 0.0), 1.0) if end > start else 1.0
