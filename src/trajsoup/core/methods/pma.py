"""PMA, pre-training model averaging: simple, linearly weighted or exponential (Li 2025, arXiv 2505.12082)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from trajsoup.core.methods.anchors import anchors, uneven
from trajsoup.core.methods.asking import Asking
from trajsoup.core.methods.ema import ema_weights
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.pool import Candidate
from trajsoup.core.quantity import Share
from trajsoup.errors import SelectionError

LATEST = 10


@method(name="pma", label="PMA", reference="li2025", scope=Scope.EITHER, takes_window=True, default=False)
def pma(
    freedom: Freedom,
    *,
    kind: Annotated[Literal["sma", "wma", "ema"], "Equal, proportional to the number, or exponential weights."] = "sma",
    alpha: Annotated[Share, "Weight of the newest checkpoint in `ema`."] = 0.2,
) -> Asking:
    """The latest checkpoints of a branch, ten unless --window says otherwise: SMA, WMA or EMA."""
    if alpha == 0:
        raise SelectionError("pma with alpha=0 never leaves the oldest checkpoint: use an alpha above 0")

    def weigh(candidates: Sequence[Candidate]) -> list[float]:
        n = len(candidates)
        if kind == "ema":
            return ema_weights([1 - alpha] * (n - 1))
        raw = [1.0] * n if kind == "sma" else [float(i) for i in range(1, n + 1)]
        return [value / sum(raw) for value in raw]

    note = None if kind == "sma" else uneven(freedom)
    return anchors(freedom, weigh, usual=LATEST, notes=() if note is None else (note,))
