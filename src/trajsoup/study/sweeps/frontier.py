"""The best model at each compute (fig:trajectory-soup-compute-allocation)."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.budget import Setting
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.methods.table import METHODS
from trajsoup.study.choosing.entries import Axis, Entry, entry_of
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SINGLE, SOUP, point
from trajsoup.study.sweeps.table import Sweep, sweep

RAW = METHODS["raw-final"]
RAW_SERIES = "Raw"


@sweep(
    name="frontier",
    title="The best model at each compute",
    paper="fig:trajectory-soup-compute-allocation",
    axis="tokens of all",
    own_section=True,
)
def frontier(field: Field, asked: Sweep) -> Sequence[Entry]:
    """Raw training, one merged trajectory and soups at each total compute.

    At a given compute the soup chooses N, branches and K, the single merge branch and K. Raw training is the baseline's
    checkpoints as they come: nothing is chosen.
    """
    entries: list[Entry] = []
    raw = field.freedom(RAW, [Stop(branches=(field.baseline,))])
    for c in field.chosen([field.baseline])[0].candidates:
        option = raw.option({c.key: 1.0}, stop=Stop(branches=(c.branch,), horizon=c.tokens))
        at = Axis(series=RAW_SERIES, x=float(c.tokens))
        entries.append(point(asked, f"raw@{c.tokens}", option, at, method=RAW))
    most = len(field.pools)
    for method, sizes, free in (
        (SINGLE, [1], ("branch", "k")),
        (SOUP, range(2, most + 1), ("branches", "horizon", "k")),
    ):
        budgets: dict[int, list[Stop]] = {}
        for n in sizes:
            shares = (field.branch_horizon(h, n_branches=n, setting=Setting.LIMITED) for h in field.horizons)
            for at in sorted({*field.horizons, *(h for h in shares if h is not None)}):
                budgets.setdefault(at * n, []).extend(field.stops([n], setting=Setting.EXTENDED, budget=at))
        for tokens, stops in sorted(budgets.items()):
            freedom = field.freedom(method, stops, free=free)
            if freedom.stops:
                at = Axis(series=method.label, x=float(tokens))
                key = f"{method.name}@{tokens}"
                entries.append(entry_of(method, freedom, key=key, label=method.label, sweep=asked.name, at=at))
    return entries
