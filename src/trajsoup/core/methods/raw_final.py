"""Raw training: the baseline's last checkpoint."""

from __future__ import annotations

from trajsoup.core.methods.asking import Decision
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Scope, method
from trajsoup.core.selection import latest_first


@method(
    name="raw-final",
    label="Raw, final",
    reference="tab:tiny-mid-train-main",
    scope=Scope.BASELINE,
    select="final",
    strategy="raw",
)
def raw_final(freedom: Freedom) -> Decision:
    """The last checkpoint of the baseline, as training left it."""
    (stop,) = freedom.stops
    last = latest_first(freedom.at(stop)[0])[0]
    at = Stop(branches=stop.branches, horizon=last.tokens)
    return Decision(option=freedom.option({last.key: 1.0}, stop=at))
