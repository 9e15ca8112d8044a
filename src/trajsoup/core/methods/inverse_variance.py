"""Branches weighed by the inverse of their anchors' variance (app:covariance), which is read off losses.

For independent anchors of one mean and a quadratic loss, L(a_n) = b + v_n / 2 and L(mean) = b + sum v / (2 N^2). So the
losses of the N anchors and of their mean give b and every v_n. Where that makes a variance negative, nothing can be said
of the weights and they stay equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trajsoup.core.choosing import loss_of
from trajsoup.core.covariance import inverse_variance_weights
from trajsoup.core.methods.asking import Asking, Option, Score, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.selection import TOP_K


@method(
    name="inverse-variance",
    label="Inverse-variance branches",
    reference="app:covariance",
    scope=Scope.SEVERAL,
    select=TOP_K,
    takes_k=True,
    default=False,
)
def inverse_variance(freedom: Freedom) -> Asking:
    """The K best checkpoints of each branch, branches weighed by the inverse of their variance as losses show it."""
    sets = [(option, _anchors(freedom, option)) for option in freedom.options(TOP_K)]
    asked = {o.name: o for option, alone in sets for o in (option, *alone)}
    scores = yield Score(options=tuple(asked.values()))
    notes: list[str] = []
    rows: list[Option] = []
    for option, alone in sets:
        losses = [loss_of(scores[o.name]) for o in (option, *alone)]
        known = [value for value in losses if value is not None]
        variances = anchor_variances(known[1:], known[0]) if len(known) == len(losses) else None
        if variances is None:
            notes.append(
                f"the losses of {'+'.join(option.branches)} leave a variance negative: its branches weigh equally"
            )
            rows.append(option)
            continue
        shares = inverse_variance_weights(variances)
        weights = {
            key: float(share) * w for share, o in zip(shares, alone, strict=True) for key, w in o.weights.items()
        }
        rows.append(replace(option, weights={key: weight for key, weight in weights.items() if weight}))
    found = yield from best_of(rows, rank_by=freedom.rank_by, free=(*freedom.free, "branch weights"))
    return replace(found, notes=(*found.notes, *notes), compared=tuple(asked.values()))


def anchor_variances(anchors: Sequence[float], mean: float) -> list[float] | None:
    """v_n from the losses of anchors and of their mean; None where one comes out negative or not finite."""
    n = len(anchors)
    total = 2 * (sum(anchors) - n * mean) / (1 - 1 / n) if n > 1 else float("nan")
    floor = sum(anchors) / n - total / (2 * n)  # b
    found = [2 * (loss - floor) for loss in anchors]
    return found if all(np.isfinite(v) and v > 0 for v in found) else None


def _anchors(freedom: Freedom, option: Option) -> list[Option]:
    """The merge of each branch alone, at the same stop and K."""
    stops = tuple(Stop(branches=(name,), horizon=option.horizon) for name in option.branches)
    alone = replace(freedom, stops=stops, ks=() if option.k is None else (option.k,))
    return list(alone.options(TOP_K))
