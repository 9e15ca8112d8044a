"""B. The price of a trajectory: N promised from small soups and short horizons, against always one and always all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trajsoup.core.budget import Setting
from trajsoup.core.estimators import SoupLosses
from trajsoup.core.methods.asking import Option
from trajsoup.core.methods.table import METHODS
from trajsoup.core.price import fit_surface
from trajsoup.core.scores import DocumentLosses
from trajsoup.core.selection import TOP_K
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.wishes.duel import mean_of, on_test
from trajsoup.study.workbench import Workbench

SMALL = 2  # branches of the soups that the law is fitted on


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """One seed: T tokens in N branches of T/N. Losses on test are means over the sets of N, at the K promised best."""

    promised: Mapping[int, float]  # N -> loss, on validation
    measured: Mapping[int, DocumentLosses]  # N -> on test

    @property
    def chosen(self) -> int:
        """N of least promise."""
        return min(self.promised, key=lambda n: (self.promised[n], n))

    @property
    def best(self) -> int:
        """N of least measured loss: nobody could have known it."""
        return min(self.measured, key=lambda n: (self.measured[n].loss(), n))

    @property
    def one(self) -> int:
        """The fewest branches."""
        return min(self.measured)

    @property
    def most(self) -> int:
        """The most."""
        return max(self.measured)

    def promised_gain(self, n: int) -> float:
        """What the chosen N was promised to take off the loss of another."""
        return self.promised[n] - self.promised[self.chosen]


def split_of(bench: Workbench) -> Split:
    """Fitted on one and two branches at horizons below T; every set of N branches of T/N on test."""
    field = bench.field()
    total = field.horizon
    by_horizon: dict[int, dict[tuple[frozenset[str], int], float]] = {}
    for soup in bench.records.require(TheoryRecord).measured:
        if soup.horizon < total:
            by_horizon.setdefault(soup.horizon, {})[frozenset(soup.branches), soup.k] = soup.loss
    surface = fit_surface({h: SoupLosses(soups=soups) for h, soups in by_horizon.items()}, largest=SMALL)
    stops = field.stops(range(1, len(field.admitted) + 1), setting=Setting.LIMITED, budget=total)
    options: dict[int, dict[int, list[Option]]] = {}
    for option in field.freedom(METHODS["trajectory-soup"], stops).options(TOP_K):
        if option.k is not None and option.k in surface.laws:
            options.setdefault(len(option.branches), {}).setdefault(option.k, []).append(option)
    k_of = {n: min(ks, key=lambda k: (surface.loss(n, total / n, k), k)) for n, ks in options.items()}
    rows = {n: [option.row for option in options[n][k]] for n, k in k_of.items()}
    losses = on_test(bench, [row for each in rows.values() for row in each])
    return Split(
        promised={n: surface.loss(n, total / n, k) for n, k in k_of.items()},
        measured={n: mean_of([losses[row.name] for row in each]) for n, each in rows.items()},
    )
