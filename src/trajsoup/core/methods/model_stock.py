"""Model Stock (Jang 2024): between the fork point and the mean of the branches, by the angle between them, per tensor.

t = N cos / (1 + (N - 1) cos), with cos the mean over pairs of branches of the cosine of their displacements. All of it
follows from the Gram matrix of each tensor. Which cosine to take for more than two models is left open by the paper; the
mean over pairs is mergekit's choice, and ours.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from trajsoup.core.gram import WHOLE, Gram, Products
from trajsoup.core.methods.anchors import anchored
from trajsoup.core.methods.asking import Asking, Measure, Option, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.errors import SelectionError

LEAST = 1e-6  # of the product of two lengths, as in mergekit: a tensor that does not move stays at the fork point


@method(
    name="model-stock", label="Model Stock", reference="jang2024", scope=Scope.SEVERAL, takes_window=True, default=False
)
def model_stock(
    freedom: Freedom,
    *,
    by: Annotated[Literal["tensor", "layer"], "What has a share of its own: every tensor, or every layer."] = "tensor",
) -> Asking:
    """Between the fork point and the mean of the branches' ends, as their angles say, tensor by tensor."""
    fork_point = freedom.fork_point
    if fork_point is None:
        raise SelectionError("model-stock needs the fork point, which it pulls the mean towards: pass --fork-point")
    options: list[Option] = []
    for stop in freedom.stops:
        if len(stop.branches) < 2:
            raise SelectionError(
                f"model-stock needs the angle between branches, and there is one, {'+'.join(stop.branches)!r}: name the "
                "runs of two branches or more"
            )
        ends = [_end(freedom, stop, name) for name in stop.branches]
        keys = tuple(dict.fromkeys([fork_point, *(key for end in ends for key in end.weights)]))
        gram = yield Measure(keys=keys, centre=fork_point, parts=by)
        options.append(_stock(freedom, stop, ends, gram, fork_point))
    return (yield from best_of(options, rank_by=freedom.rank_by, free=freedom.free))


def share_of_the_mean(products: Products, w: np.ndarray) -> float:
    """t of eq. (4) there, for the models w X of one group of tensors."""
    inner = w @ products.inner @ w.T
    lengths = np.sqrt(np.maximum(np.diag(inner), 0))
    pairs = np.triu_indices(len(w), 1)
    cosines = np.clip((inner / np.maximum(np.outer(lengths, lengths), LEAST))[pairs], -1, 1)
    cos, n = float(cosines.mean()), len(w)
    return n * cos / (1 + (n - 1) * cos)


def _end(freedom: Freedom, stop: Stop, branch: str) -> Option:
    """The newest checkpoint of a branch, or the mean of its window."""
    alone = Stop(branches=(branch,), horizon=stop.horizon)
    return anchored(freedom, alone, lambda window: [1 / len(window)] * len(window), usual=1)


def _stock(freedom: Freedom, stop: Stop, ends: list[Option], gram: Gram, fork_point: str) -> Option:
    w = np.array([[end.weights.get(key, 0.0) for key in gram.keys] for end in ends])
    mean = dict(zip(gram.keys, w.mean(axis=0).tolist(), strict=True))

    def pulled(products: Products) -> dict[str, float]:
        t = share_of_the_mean(products, w)
        weights = {key: t * weight for key, weight in mean.items()}
        return {key: x for key, x in (weights | {fork_point: 1 - t}).items() if x}

    groups = {name: pulled(products) for name, products in gram.groups.items() if name != WHOLE}
    return freedom.option(pulled(gram.whole), stop=stop, groups=groups)
