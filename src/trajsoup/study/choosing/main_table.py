"""All methods side by side, as entries: the main table, and the same at a given token budget (the curves over horizons).

All have the same freedom: which admitted branches and, where they have one, which K. The budget is prescribed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trajsoup.core.budget import Setting
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.methods.table import METHODS, Method, Scope
from trajsoup.merge.choice import DEFAULT
from trajsoup.study.choosing.entries import Axis, Entry, entry_of
from trajsoup.study.choosing.field import Field


def main_entries(field: Field) -> tuple[Entry, ...]:
    """tab:tiny-mid-train-main and tab:exp-merge-mid-train."""
    return tuple(entry for method in shown(field) for entry in method_entries(field, method))


def shown(field: Field) -> list[Method]:
    """The methods of a study's tables: those that all studies show, and those that this one names."""
    asked = [method for method in METHODS.values() if method.default or method.name in field.methods]
    return [method for method in asked if method.name not in field.leaves_out]


def method_entries(
    field: Field, method: Method, *, budget: int | None = None, sweep: str | None = None
) -> Iterator[Entry]:
    """The entries of one method that spends a budget: the full horizon in the main table, `budget` on a curve.

    No method chooses its horizon: t is T / N when limited and the budget itself when extended, so that no row of one
    setting can be a row of the other.
    """
    spent = field.horizon if budget is None else budget
    mark = "" if budget is None else f"@{budget}"

    def entry(
        key: str, label: str, stops: Sequence[Stop], free: tuple[str, ...], setting: Setting | None, alone: bool = False
    ) -> Iterator[Entry]:
        freedom = field.freedom(method, stops, free=free)
        at = None if budget is None else Axis(series=label, x=float(budget))
        if freedom.stops:
            yield entry_of(
                method, freedom, key=f"{key}{mark}", label=label, sweep=sweep, setting=setting, at=at, alone=alone
            )

    name, label = method.name, method.label
    if method.scope is Scope.BASELINE and budget is None:  # it has no budget to prescribe
        yield from entry(name, f"{label} ({field.baseline})", [Stop(branches=(field.baseline,))], (), None)
    if method.alone is not None:
        for pool in field.pools if budget is None else field.chosen(field.admitted_at(spent)):
            own = f"{method.alone.name}/{pool.branch}", f"{method.alone.label} ({pool.branch})"
            yield from entry(*own, [Stop(branches=(pool.branch,), horizon=spent)], ("k",), None, alone=True)
    if method.scope in (Scope.ONE, Scope.EITHER):
        stops = field.stops([1], setting=Setting.LIMITED, budget=spent)
        yield from entry(name, label, stops, ("branch", "k"), None)
    if method.scope in (Scope.SEVERAL, Scope.EITHER):
        for setting in Setting:
            stops = field.stops(range(2, len(field.pools) + 1), setting=setting, budget=spent)
            own = f"{name}/{setting.value}", f"{label} ({setting.value.title()})"
            yield from entry(*own, stops, ("branches", "k"), setting)
        every = tuple(pool.branch for pool in field.pools)
        if name == DEFAULT and budget is None and set(every) > set(field.admitted):  # was the screen right?
            stops = [Stop(branches=every, horizon=field.horizon)]
            yield from entry(f"{name}/all", f"{label} (all branches, rejected too)", stops, ("k",), Setting.EXTENDED)
