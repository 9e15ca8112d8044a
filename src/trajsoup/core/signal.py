"""What is measured of a model, and what is better: the one place that knows which way a score should go."""

from __future__ import annotations

import math
from enum import StrEnum


class Signal(StrEnum):
    """What ranks, chooses and compares (app:protocol, "Selection objective")."""

    LOSS = "loss"  # nats per token, lower is better; eq:topk-selection
    ACCURACY = "accuracy"  # Overall Average of the suite, higher is better; what the paper's tables use

    @property
    def sign(self) -> int:
        """1 where lower is better, else -1: `sign * score` is to be minimised."""
        return 1 if self is Signal.LOSS else -1

    @property
    def unit(self) -> str:
        """What a difference is counted in."""
        return "nats" if self is Signal.LOSS else "points"

    @property
    def scale(self) -> float:
        """From a score to its unit: accuracies are shares and are shown in points."""
        return 1.0 if self is Signal.LOSS else 100.0

    def cost(self, score: float | None) -> float:
        """What to minimise; infinite where there is no score, or none that is a number."""
        return self.sign * score if score is not None and math.isfinite(score) else math.inf

    def improves(self, difference: float) -> bool:
        """Whether a difference, model minus reference, is in favour of the model."""
        return self.sign * difference < 0
