"""Full Soup: every checkpoint (sec:setup)."""

from __future__ import annotations

from trajsoup.core.methods.asking import Asking, best_of
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method


@method(name="full-soup", label="Full Soup", reference="sec:setup", scope=Scope.SEVERAL, select="all")
def full_soup(freedom: Freedom) -> Asking:
    """Every checkpoint of every branch, averaged."""
    return best_of(freedom.options("all"), rank_by=freedom.rank_by, free=freedom.free)
