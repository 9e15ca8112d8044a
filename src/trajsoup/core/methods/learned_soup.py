"""Learned soup (Wortsman 2022, `learned_bylayer.py`): weights on the simplex by gradient, one row or one for each part.

w = softmax(alpha), alpha from 0, AdamW with a learning rate of 0.05 and no decay. Each step asks for the slope of the
validation loss along every weight on one batch, so what it learns from is validation and its gradient tokens are counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.gram import WHOLE
from trajsoup.core.methods.asking import Asking, Descend, Option, Slope, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.quantity import Count, Positive
from trajsoup.core.window import newest
from trajsoup.errors import SelectionError

Array = NDArray[np.float64]
BETAS, EPSILON = (0.9, 0.999), 1e-8
LEAST = 1e-12  # a weight below this is none


@method(
    name="learned-soup",
    label="Learned Soup",
    reference="wortsman2022",
    scope=Scope.EITHER,
    takes_window=True,
    default=False,
)
def learned_soup(
    freedom: Freedom,
    *,
    by: Annotated[
        Literal["all", "layer", "tensor"], "One row for all tensors, or one for each layer or tensor."
    ] = "all",
    steps: Annotated[Count, "Batches that it learns from."] = 50,
    lr: Annotated[Positive, "Learning rate of AdamW."] = 0.05,
) -> Asking:
    """Weights on the simplex, learned by gradient on validation; one row, or one for each layer or tensor."""
    parts = None if by == "all" else by
    found: list[Option] = []
    for stop in freedom.stops:
        keys = window_keys(freedom, stop)
        adam: dict[str, Adam] = {}
        option = freedom.option(dict.fromkeys(keys, 1 / len(keys)), stop=stop)
        for step in range(steps):
            slope = yield Descend(option=option, keys=keys, batch=step, parts=parts)
            require_finite(slope, "learned-soup", step)
            for part, along in slope.along.items():
                if parts is None or part != WHOLE:
                    mine = adam.setdefault(part, Adam(np.zeros(len(keys)), lr=lr))
                    w = softmax(mine.value)
                    mine.step(w * (along - w @ along))
            option = _option(freedom, stop, keys, {part: softmax(a.value) for part, a in adam.items()}, option)
        found.append(option)
    decision = yield from best_of(found, rank_by=freedom.rank_by, free=freedom.free)
    return replace(decision, free=(*decision.free, "weights"))


class Adam:
    """AdamW of torch without decay, for a handful of numbers."""

    def __init__(self, value: Array, *, lr: float) -> None:
        self.value, self.lr, self.count = value, lr, 0
        self._mean, self._square = np.zeros_like(value), np.zeros_like(value)

    def step(self, gradient: Array) -> None:
        """One update."""
        self.count += 1
        first, second = BETAS
        self._mean = first * self._mean + (1 - first) * gradient
        self._square = second * self._square + (1 - second) * gradient**2
        root = np.sqrt(self._square / (1 - second**self.count)) + EPSILON
        self.value = self.value - self.lr * self._mean / (1 - first**self.count) / root


def softmax(values: Array) -> Array:
    """Weights on the simplex."""
    raised = np.exp(values - values.max())
    return raised / raised.sum()


def window_keys(freedom: Freedom, stop: Stop) -> tuple[str, ...]:
    """The checkpoints of every branch's window."""
    return tuple(c.key for pool in freedom.at(stop) for c in newest(pool, freedom.window))


def require_finite(slope: Slope, name: str, step: int) -> None:
    """Refuse to go on after a loss that is no number."""
    if not np.isfinite(slope.loss):
        raise SelectionError(
            f"{name} has a loss of {slope.loss} after {step} steps: it diverged; lower its learning rate"
        )


def _option(freedom: Freedom, stop: Stop, keys: tuple[str, ...], rows: dict[str, Array], before: Option) -> Option:
    def weights(row: Array) -> dict[str, float]:
        return {key: float(w) for key, w in zip(keys, row, strict=True) if w > LEAST}

    if WHOLE in rows:
        return freedom.option(weights(rows[WHOLE]), stop=stop)
    return freedom.option(before.weights, stop=stop, groups={part: weights(row) for part, row in rows.items()})
