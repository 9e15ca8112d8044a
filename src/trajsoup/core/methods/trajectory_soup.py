"""Trajectory Soup: the K best checkpoints of each branch, branches averaged (eq:trajectory-soup)."""

from __future__ import annotations

from trajsoup.core.methods.asking import Asking, best_of
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.selection import TAIL_K, TOP_K


@method(
    name="trajectory-soup",
    label="Trajectory Soup",
    reference="eq:trajectory-soup",
    scope=Scope.SEVERAL,
    select=TOP_K,
    selects=("global", TAIL_K),
    takes_k=True,
    takes_weights=True,
)
def trajectory_soup(freedom: Freedom) -> Asking:
    """The K best checkpoints of each branch, averaged inside and then over branches."""
    return best_of(freedom.options(TOP_K), rank_by=freedom.rank_by, free=freedom.free)
