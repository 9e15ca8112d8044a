"""Exponential moving average of the saved checkpoints.

theta <- d theta + (1 - d) theta_i, from the oldest. One that is taken at every step of training, as torch's `swa_utils`
does, cannot be rebuilt from checkpoints that lie further apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated

from trajsoup.core.methods.anchors import anchors, require_tokens, uneven
from trajsoup.core.methods.asking import Asking
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.quantity import Share, Tokens
from trajsoup.errors import SelectionError

DECAY = 0.8


@method(
    name="ema", label="EMA of checkpoints", reference="swa_utils", scope=Scope.EITHER, takes_window=True, default=False
)
def ema(
    freedom: Freedom,
    *,
    decay: Annotated[Share | None, "What is kept of the average at each checkpoint. Default 0.8."] = None,
    half_life: Annotated[Tokens | None, "Tokens after which half is kept, instead of decay."] = None,
) -> Asking:
    """An exponential moving average over the saved checkpoints of a branch, not over every step."""
    if half_life is None:
        kept = DECAY if decay is None else decay
        if kept == 1:
            raise SelectionError("ema with decay=1 never leaves the oldest checkpoint: use a decay below 1")
        note = uneven(freedom)
        return anchors(
            freedom,
            lambda candidates: ema_weights([kept] * (len(candidates) - 1)),
            notes=() if note is None else (f"{note}: half_life=TOKENS does",),
        )
    if decay is not None:
        raise SelectionError(f"ema is given decay={decay:g} and half_life={half_life:,}: leave out one of them")
    require_tokens(freedom, "half_life", "use decay")
    return anchors(
        freedom,
        lambda candidates: ema_weights(
            [0.5 ** ((b.tokens - a.tokens) / half_life) for a, b in itertools.pairwise(candidates)]
        ),
    )


def ema_weights(kept: Sequence[float]) -> list[float]:
    """The row of an average that begins at the oldest of n checkpoints and keeps these n - 1 shares on the way."""
    return [
        (1.0 if i == 0 else 1 - kept[i - 1]) * math.prod(kept[i:])  # w_1 = d^(n-1), w_i = (1 - d) d^(n-i)
        for i in range(len(kept) + 1)
    ]
