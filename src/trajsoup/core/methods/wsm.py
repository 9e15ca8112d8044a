"""WSM: merging checkpoints of a constant learning rate as if it had decayed (Tian 2026, arXiv 2507.17634).

    decay f(x) -> update coefficients u_i = f(x_i) -> merge weights c_i = u_i - u_{i+1}        c_0 = 1 - u_1

Averaging checkpoints re-weights the updates between them: sum_i c_i theta_i = theta_0 + sum_i u_i (theta_i - theta_{i-1}).
That is exact. It is not the decayed run itself, whose gradients would have been taken elsewhere.

The x_i come from tokens: the decay begins at the oldest checkpoint and would end one mean spacing after the newest, which
for even spacing is i/n, the published formula (Megatron-LM pull request 5114).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from trajsoup.core.methods.anchors import anchored, in_window, require_tokens
from trajsoup.core.methods.asking import Asking, Option, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.errors import SelectionError

DECAYS: dict[str, Callable[[float], float]] = {
    "linear": lambda x: 1 - x,
    "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
    "1-sqrt": lambda x: 1 - math.sqrt(x),  # a decay in time; the weighting `1sqrt` is another thing
}


@method(name="wsm", label="WSM", reference="tian2026", scope=Scope.EITHER, takes_window=True, default=False)
def wsm(
    freedom: Freedom,
    *,
    decay: Annotated[Literal["linear", "cosine", "1-sqrt"], "The shape of the learning-rate decay."] = "linear",
    start: Annotated[Literal["window", "fork-point"], "Where it begins: the window's oldest, or the fork point."] = (
        "window"
    ),
) -> Asking:
    """The checkpoints of a window, weighed as if the learning rate had decayed over their tokens."""
    require_tokens(freedom, "wsm", "use pma")
    if start == "window":
        options = [
            anchored(freedom, stop, lambda window: decay_weights([c.tokens for c in window], decay=decay))
            for stop in freedom.stops
        ]
    elif freedom.fork_point is None:
        raise SelectionError("wsm with start=fork-point needs the fork point: pass --fork-point, or use start=window")
    else:
        options = [_from_the_fork_point(freedom, stop, decay, freedom.fork_point) for stop in freedom.stops]
    return best_of(options, rank_by=freedom.rank_by, free=freedom.free)


def decay_weights(tokens: Sequence[int], *, decay: str) -> list[float]:
    """Merge weights of checkpoints at these tokens, the oldest first."""
    n, shape = len(tokens), DECAYS[decay]
    if n == 1:
        return [1.0]
    length = (tokens[-1] - tokens[0]) * n / (n - 1)
    return merge_weights([shape((t - tokens[0]) / length) for t in tokens[1:]])


def merge_weights(updates: Sequence[float]) -> list[float]:
    """c_0 .. c_n from the update coefficients u_1 .. u_n: what each checkpoint weighs."""
    return [a - b for a, b in itertools.pairwise([1.0, *updates, 0.0])]


def update_coefficients(weights: Sequence[float]) -> list[float]:
    """u_1 .. u_n from the merge weights c_0 .. c_n: u_i = sum of c_j over j >= i, the inverse of `merge_weights`."""
    return [math.fsum(weights[i:]) for i in range(1, len(weights))]


def _from_the_fork_point(freedom: Freedom, stop: Stop, decay: str, fork_point: str) -> Option:
    pools = freedom.at(stop)
    weights: dict[str, float] = {}
    for pool in pools:
        window = in_window(freedom, pool)
        found = decay_weights([0, *(c.tokens for c in window)], decay=decay)
        for key, weight in zip([fork_point, *(c.key for c in window)], found, strict=True):
            weights[key] = weights.get(key, 0.0) + weight / len(pools)
    return freedom.option(weights, stop=stop)
