"""C. Adaptive branches against static allocations of the same tokens, replayed over finished seeds, on test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.replay import Replayed
from trajsoup.core.scores import DocumentLosses
from trajsoup.study.allocation.replay import (
    GRID,
    PLAIN,
    FinishedWorld,
    Game,
    Outcome,
    games,
    measured,
    outcome_of,
    replayed,
)
from trajsoup.study.wishes.duel import mean_of
from trajsoup.study.workbench import Workbench


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adapted:
    """One seed: every policy and every static allocation at every budget, in several orders of opening."""

    horizon: int
    games: Sequence[Game]
    losses: Mapping[Outcome, DocumentLosses]

    def regrets(self, *, seed: int) -> list[Replayed]:
        """As the seed of this number."""
        return replayed(self.games, self.losses, seed=seed)

    def policy(self, name: str, *, budget: int) -> DocumentLosses:
        """Of the soup that a policy ends with; the mean over orders."""
        return self._mean([outcome_of(game.policies[name]) for game in self._at(budget)])

    def promised(self, name: str, n: int, *, budget: int) -> float:
        """The loss that it ended with minus that of N static branches, on what decisions are made on."""
        found = [game.policies[name].loss - game.promised[n] for game in self._at(budget)]
        return sum(found) / len(found)

    def branches(self, name: str, *, budget: int) -> list[int]:
        """With how many branches it ended, order by order."""
        return [len(game.policies[name].live) for game in self._at(budget)]

    def static(self, n: int, *, budget: int) -> DocumentLosses:
        """Of N branches from the beginning to the end."""
        return self._mean([game.static[n] for game in self._at(budget)])

    def pruned(self, n: int, *, budget: int) -> DocumentLosses:
        """Of the same, where the soup leaves out what the policy would leave out at the end."""
        return self._mean([game.pruned[n] for game in self._at(budget)])

    def hindsight(self, *, budget: int) -> DocumentLosses:
        """Of the static N that was best on test, order by order: nobody could have known it."""
        best = [min(g.static.values(), key=lambda o: self.losses[o].loss()) for g in self._at(budget)]
        return self._mean(best)

    def sizes(self, *, budget: int) -> list[int]:
        """Every N that the budget allows."""
        return sorted(self._at(budget)[0].static)

    def _at(self, budget: int) -> list[Game]:
        return [game for game in self.games if game.budget == budget]

    def _mean(self, outcomes: Sequence[Outcome]) -> DocumentLosses:
        return mean_of([self.losses[outcome] for outcome in outcomes])


def adapted(bench: Workbench, *, horizons: Sequence[int], orders: int) -> Adapted:
    """Replay every policy of the grid with budgets of so many horizons of one branch."""
    world = FinishedWorld(bench)
    longest = world.positions[-1]
    found = games(world, budgets=[longest * h for h in horizons], policies=GRID, orders=orders)
    return Adapted(horizon=longest, games=found, losses=measured(world, found))


__all__ = ["PLAIN", "Adapted", "adapted"]
