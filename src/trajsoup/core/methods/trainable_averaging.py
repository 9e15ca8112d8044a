"""Trainable Weight Averaging (Li 2023, nblt/TWA): SGD in the span of the checkpoints, from their mean.

The gradient g in weight space is projected on the span of the displacements from the mean: with X the displacements and
G = X X^T, the step is dw = -eta G^+ (X g), which keeps the sum of the weights. Momentum 0.9 and a learning rate of 2, as
its authors have them; they span the checkpoints themselves, we their affine hull, so that no row scales the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from trajsoup.core.gram import WHOLE
from trajsoup.core.methods.asking import Asking, Descend, Measure, Option, best_of
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.learned_soup import Array, require_finite, window_keys
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.quantity import Count, Positive
from trajsoup.core.splits import Split
from trajsoup.errors import SelectionError

RANK = 1e-6  # of the largest eigenvalue of G: what is below is rounding, and no direction to go


@method(
    name="trainable-averaging",
    label="Trainable Weight Averaging",
    reference="li2023",
    scope=Scope.EITHER,
    takes_window=True,
    default=False,
)
def trainable_averaging(
    freedom: Freedom,
    *,
    on: Annotated[Literal["train", "validation"], "The documents it learns from: TWA-t or TWA-v."] = "validation",
    steps: Annotated[Count, "Batches that it learns from."] = 50,
    lr: Annotated[Positive, "Learning rate of SGD, in weight space."] = 2.0,
    momentum: Annotated[float, "Of SGD."] = 0.9,
) -> Asking:
    """SGD in the span of the checkpoints, from their mean: weights of any sign."""
    found: list[Option] = []
    for stop in freedom.stops:
        keys = window_keys(freedom, stop)
        if len(keys) < 2:
            raise SelectionError(
                f"trainable-averaging needs two checkpoints to span a direction, and there is {len(keys)}"
            )
        centring = np.eye(len(keys)) - 1 / len(keys)
        inverse: Array | None = None
        w, velocity = np.full(len(keys), 1 / len(keys)), np.zeros(len(keys))
        for step in range(steps):
            here = freedom.option({key: float(x) for key, x in zip(keys, w, strict=True) if x}, stop=stop)
            slope = yield Descend(option=here, keys=keys, batch=step, on=Split(on))
            require_finite(slope, "trainable-averaging", step)
            if inverse is None:  # after the first gradient: where nobody takes one, nothing has been read yet
                gram = yield Measure(keys=keys, centre=keys[0])
                inverse = _inverse(centring @ gram.whole.inner @ centring)
            velocity = momentum * velocity + inverse @ (centring @ slope.along[WHOLE])
            w = w - lr * velocity
        found.append(freedom.option({key: float(x) for key, x in zip(keys, w, strict=True) if x}, stop=stop))
    decision = yield from best_of(found, rank_by=freedom.rank_by, free=freedom.free)
    return replace(decision, free=(*decision.free, "weights"))


def _inverse(square: Array) -> Array:
    """The pseudo-inverse of G: what is flat stays where it is."""
    values, vectors = np.linalg.eigh(square)
    kept = values > RANK * values.max()
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
