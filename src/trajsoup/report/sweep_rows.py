"""The row of W behind a point of a sweep, computed again from validation scores.

A sweep's record keeps the shape of a row (branches, K, horizon, how it was selected), not its weights. The selection is
a pure function of validation scores, which are on record, so the row can be had again. A row whose size differs from
the recorded one is not shown: then it was made in another way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trajsoup.core.coefficients import Coefficients
from trajsoup.core.pool import Candidate, Pool, RankBy
from trajsoup.core.selection import Select
from trajsoup.core.soup import soup_row
from trajsoup.errors import TrajsoupError
from trajsoup.study import records as r


def pools_of(validation: r.ValidationRecord | None) -> dict[str, Pool]:
    """Candidate pools by branch."""
    found: dict[str, list[Candidate]] = {}
    for s in () if validation is None else validation.checkpoints:
        if s.loss is not None and math.isfinite(s.loss):
            found.setdefault(s.branch, []).append(
                Candidate(key=s.key, branch=s.branch, tokens=s.tokens, val_loss=s.loss, accuracy=s.accuracy)
            )
    return {name: Pool(branch=name, candidates=tuple(candidates)) for name, candidates in found.items()}


def sweep_weights(point: r.SweepPoint, sweep: str, pools: Mapping[str, Pool]) -> Mapping[str, float] | None:
    """The weights of a point, or None where the record does not tell how they were made."""
    how = _how(point, sweep)
    if how is None or any(name not in pools for name in point.branches):
        return None
    rule, scheme = how
    try:
        row = soup_row(
            [pools[name] for name in point.branches],
            k=point.k,
            rule=rule,
            scheme=scheme,
            horizon=point.horizon,
            rank_by=RankBy(point.chosen_on.signal.value),
            name=point.row,
        )
    except TrajsoupError:
        return None
    return row.weights if len(row.weights) == point.merge_size else None


def _how(point: r.SweepPoint, sweep: str) -> tuple[Select, Coefficients] | None:
    if sweep == "scaling":
        return Select.TOP_K, Coefficients.EQUAL
    if sweep == "coefficients" and point.x in tuple(Coefficients):
        return Select.TOP_K, Coefficients(str(point.x))
    if sweep == "selections" and point.x in tuple(Select):
        return Select(str(point.x)), Coefficients.EQUAL
    if sweep == "horizons":
        kind = point.row.removeprefix("horizons/")
        for start, rule in (("model-soup", Select.FINAL), ("full-soup", Select.ALL)):
            if kind.startswith(start):
                return rule, Coefficients.EQUAL
        return Select.TOP_K, Coefficients.EQUAL
    return None
