"""Raw training: the one checkpoint that validates best."""

from __future__ import annotations

from trajsoup.core.methods.asking import Asking, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.pool import ranked
from trajsoup.core.selection import TOP_K


@method(
    name="raw-best",
    label="Raw, best checkpoint",
    reference="tab:tiny-mid-train-main",
    scope=Scope.ONE,
    select=TOP_K,
    strategy="raw",
)
def raw_best(freedom: Freedom) -> Asking:
    """The best single checkpoint of all branches."""
    every = {c.key: c for stop in freedom.stops for pool in freedom.at(stop) for c in pool.candidates}
    options = [
        freedom.option({c.key: 1.0}, stop=Stop(branches=(c.branch,), horizon=c.tokens))
        for c in ranked(tuple(every.values()), rank_by=freedom.rank_by)
    ]
    return best_of(options, rank_by=freedom.rank_by, free=("branch", "checkpoint"))
