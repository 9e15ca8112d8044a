"""Extra-Merge (Zhou 2026, arXiv 2605.26484; known from a summary, no code was found): go on along the merged trajectory.

Consecutive merged checkpoints lie nearly on a line. Its direction, their leading principal component, is in the span of
the checkpoints, so the point beyond the last merged one is a row that sums to 1 and has negative entries: it follows from
the Gram matrix, and no weight is read for it. How far to go is chosen on validation; that rule is ours.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from trajsoup.core.geometry import direction
from trajsoup.core.gram import Gram, weights_matrix
from trajsoup.core.methods.asking import Asking, Measure, Option, Score, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.pool import Pool
from trajsoup.core.quantity import Count
from trajsoup.core.trajectory import merged_points
from trajsoup.core.window import newest
from trajsoup.errors import SelectionError

STEPS = (0.0, 0.5, 1.0, 2.0, 4.0)


@method(
    name="extra-merge", label="Extra-Merge", reference="zhou2026", scope=Scope.EITHER, takes_window=True, default=False
)
def extra_merge(
    freedom: Freedom,
    *,
    merged: Annotated[Count, "Checkpoints in each merged point."] = 4,
    steps: Annotated[
        float | None, "How far beyond the last point, in mean steps between points. Default: best of 0, 0.5, 1, 2, 4."
    ] = None,
) -> Asking:
    """Beyond the last merged checkpoint of a branch, along the leading direction of its merged trajectory."""
    options: list[Option] = []
    for stop in freedom.stops:
        here = [Pool(branch=p.branch, candidates=newest(p, freedom.window)) for p in freedom.at(stop)]
        for pool in here:
            _require_two_points(pool, merged)
        if steps is None and not options:  # where nobody scores merges, that is heard before anything is measured
            yield Score(options=(_last(freedom, stop, here, merged=merged),))
        keys = tuple(c.key for pool in here for c in pool.candidates)
        gram = yield Measure(keys=keys, centre=keys[0])
        for far in STEPS if steps is None else (steps,):
            options.append(_beyond(freedom, stop, here, gram, merged=merged, far=far))
    free = (*freedom.free, "lambda") if steps is None else freedom.free
    return (yield from best_of(options, rank_by=freedom.rank_by, free=free))


def _require_two_points(pool: Pool, merged: int) -> None:
    if len(pool.candidates) <= merged:
        raise SelectionError(
            f"extra-merge with merged={merged} needs {merged + 1} checkpoints for two merged points, and branch "
            f"{pool.branch!r} has {len(pool.candidates)}: lower merged, or lengthen the window"
        )


def _last(freedom: Freedom, stop: Stop, pools: list[Pool], *, merged: int) -> Option:
    """The mean over branches of their last merged points: no step beyond them."""
    ends = [merged_points(pool, window=merged)[-1].row for pool in pools]
    return freedom.option({key: w / len(ends) for end in ends for key, w in end.weights.items()}, stop=stop)


def _beyond(freedom: Freedom, stop: Stop, pools: list[Pool], gram: Gram, *, merged: int, far: float) -> Option:
    """The mean over branches of their last merged points, each moved `far` mean steps along its direction."""
    total = np.zeros(len(gram.keys))
    for pool in pools:
        rows = [point.row for point in merged_points(pool, window=merged)]
        w, along = weights_matrix(gram, rows), direction(gram, rows, branch=pool.branch).coefficients
        step = float(along @ gram.whole.inner @ (w[-1] - w[0])) / (len(rows) - 1)
        total += (w[-1] + far * step * along) / len(pools)
    return freedom.option({key: float(x) for key, x in zip(gram.keys, total, strict=True) if x}, stop=stop)
