"""D. Recipes picked from beginnings against the first ones of the file, by what their soups have on test at the end.

single checkpoints at the first horizon, on validation -> pairs -> promised gain of every set (core/ahead.py) -> one picked
every set's Trajectory Soup at the full horizon, K chosen on validation -> test
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from trajsoup.core.ahead import Ahead
from trajsoup.core.choosing import choose
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.methods.table import METHODS
from trajsoup.core.scores import DocumentLosses
from trajsoup.core.selection import TOP_K
from trajsoup.study.design.ahead import gains_ahead
from trajsoup.study.wishes.duel import on_test
from trajsoup.study.workbench import Workbench


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picked:
    """One seed and one N."""

    ahead: Ahead  # what the first horizon said; gains at the end are those of test
    first: tuple[str, ...]  # the first N recipes, in the order of the file
    soups: Mapping[tuple[str, ...], DocumentLosses]  # set -> its Trajectory Soup at the full horizon, on test

    @property
    def best(self) -> tuple[str, ...]:
        """The set of least loss: nobody could have known it."""
        return min(self.soups, key=lambda names: (self.soups[names].loss(), names))


def picked_sets(bench: Workbench, *, sizes: tuple[int, ...]) -> dict[int, Picked]:
    """By N, for every N that leaves something to pick."""
    field = bench.field()
    sizes = tuple(n for n in sizes if 1 < n < len(field.admitted))
    sets = {n: [tuple(sorted(s)) for s in itertools.combinations(field.admitted, n)] for n in sizes}
    options = {
        names: field.freedom(METHODS["trajectory-soup"], [Stop(branches=names, horizon=field.horizon)]).options(TOP_K)
        for each in sets.values()
        for names in each
    }
    every = [option.row for found in options.values() for option in found]
    validated = bench.scorer.validate(every, what="sets", tasks=False)
    rows = {
        names: {o.name: o.row for o in found}[
            choose({o.name: validated[o.name] for o in found}, rank_by=field.rank_by).name
        ]
        for names, found in options.items()
    }
    losses = on_test(bench, list(rows.values()))
    return {
        n: Picked(
            ahead=gains_ahead(bench, n_branches=n, late_on_test=True),
            first=tuple(sorted(field.admitted[:n])),
            soups={names: losses[rows[names].name] for names in sets[n]},
        )
        for n in sizes
    }
