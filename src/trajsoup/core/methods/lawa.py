"""LAWA: the mean of the latest few checkpoints (Kaddour 2022; Sanyal 2023)."""

from __future__ import annotations

from trajsoup.core.methods.anchors import anchors
from trajsoup.core.methods.asking import Asking
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method

LATEST = 5


@method(name="lawa", label="LAWA", reference="sanyal2023", scope=Scope.EITHER, takes_window=True, default=False)
def lawa(freedom: Freedom) -> Asking:
    """The mean of the latest checkpoints of a branch: five, unless --window says otherwise."""
    return anchors(freedom, lambda candidates: [1 / len(candidates)] * len(candidates), usual=LATEST)
