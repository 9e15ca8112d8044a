"""Stochastic Weight Averaging: the mean of the tail (Izmailov 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from trajsoup.core.methods.anchors import anchors
from trajsoup.core.methods.asking import Asking
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.pool import Candidate
from trajsoup.core.quantity import Share


@method(name="swa", label="SWA", reference="izmailov2018", scope=Scope.EITHER, takes_window=True, default=False)
def swa(
    freedom: Freedom,
    *,
    start: Annotated[Share, "Where the tail begins, as a share of the branch, unless --window says so."] = 0.75,
) -> Asking:
    """The mean of the tail of a branch. A constant or cyclic learning rate there is part of the recipe."""

    def weigh(candidates: Sequence[Candidate]) -> list[float]:
        last = candidates[-1].tokens
        tail = [freedom.window is not None or c.tokens > start * last or c is candidates[-1] for c in candidates]
        return [inside / sum(tail) for inside in tail]

    return anchors(freedom, weigh)
