"""Replay policies over a finished study: every subset and horizon of it can be scored, so what would have been is known.

    Workbench of a finished seed -> FinishedWorld -> play (core/allocating.py) -> branches and t -> their soup on test
    the same for every static (N, t) of equal tokens -> regrets (core/replay.py)

Decisions see validation documents only, and of every branch only what it had by the look. Where the study's horizons are
the positions, its theory stage has scored all of it before.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.adaptive import Course, Policy, Table, draw_documents, spoilers
from trajsoup.core.allocating import Played, play, statics
from trajsoup.core.replay import Replayed, above_best, mean_over_orders
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row, soup_row
from trajsoup.study.allocation.tables import course, look_positions, look_rows, look_table
from trajsoup.study.records.validation import ValidationRecord
from trajsoup.study.workbench import Workbench

Outcome = tuple[tuple[str, ...], int, int]  # branches, t, K
GRID = {
    f"start {start}, sure {sure:g}, lean {lean:g}{'' if shorten else ', never fewer'}": Policy(
        start=start, sure=sure, lean=lean, shorten=shorten
    )
    for start, sure, lean, shorten in itertools.product((2, 3), (0.3, 0.5, 0.8), (0.5, 1.0, 2.0), (0.9, None))
}
PLAIN = next(name for name, policy in GRID.items() if policy == Policy())


class FinishedWorld:
    """A finished study as a world: nothing is trained, and what was scored is remembered."""

    def __init__(self, bench: Workbench, *, looks: int | None = None) -> None:
        self.bench, field = bench, bench.field()
        self._pools = {pool.branch: pool for pool in bench.pools()}
        first = field.baseline
        self.names: Sequence[str] = (first, *(name for name in self._pools if name != first))
        shared = set.intersection(*({c.tokens for c in pool.candidates} for pool in self._pools.values()))
        self.positions: Sequence[int] = look_positions(shared, looks=looks or field.n_horizons, fewest=min(field.ks))
        scored = bench.records.require(ValidationRecord).checkpoints
        self._probe = {(c.branch, c.tokens): c.probe_loss for c in scored}
        self._tables: dict[tuple[tuple[str, ...], int], Table] = {}

    def reach(self, branches: Sequence[str], tokens: int) -> Mapping[str, str]:
        """They have been there."""
        return {}

    def table(self, branches: Sequence[str], tokens: int) -> Table:
        """Anchors and pairs on validation."""
        key = tuple(branches), tokens
        if key not in self._tables:
            self._tables[key] = look_table(
                [self._pools[name] for name in branches],
                tokens=tokens,
                ks=self.bench.setup.evaluation.ks,
                scoring=lambda rows: {row.name: self._scores[row.name] for row in rows},
            )
        return self._tables[key]

    @functools.cached_property
    def _scores(self) -> dict[str, ValidationScores]:
        """Of all that any look can ask for, in one read."""
        pools, ks = [self._pools[name] for name in sorted(self._pools)], self.bench.setup.evaluation.ks
        found = [look_rows(pools, tokens=tokens, ks=ks) for tokens in self.positions]
        rows = [row for at in found for by_group in at.values() for row in by_group.values()]
        return self.bench.scorer.validate(rows, what="looks", tasks=False)

    def course(self, branch: str, tokens: int) -> Course:
        """J on the probe of training documents, checkpoint by checkpoint."""
        return course(list(self._pools.values()), branch, self._probe, baseline=self.names[0], tokens=tokens)

    def reordered(self, names: Sequence[str]) -> FinishedWorld:
        """The same world with branches opened in another order; what is known stays known."""
        other = object.__new__(FinishedWorld)
        other.__dict__ |= self.__dict__
        other.names = tuple(names)
        return other

    def row(self, outcome: Outcome) -> Row:
        """The soup that an outcome stands for."""
        branches, tokens, k = outcome
        pools = [self._pools[name] for name in branches]
        name = f"outcome/{'+'.join(branches)}/K={k}@{tokens}"
        return soup_row(pools, k=k, horizon=tokens, rank_by=Signal.LOSS, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One order of opening at one budget: how every policy ended, and every static allocation."""

    budget: int
    order: tuple[str, ...]
    policies: Mapping[str, Played]
    static: Mapping[int, Outcome]  # by N
    pruned: Mapping[int, Outcome]  # the same without those that the plain policy would leave out at the end
    promised: Mapping[int, float]  # loss of each of these on what decisions are made on


def games(
    world: FinishedWorld, *, budgets: Sequence[int], policies: Mapping[str, Policy], orders: int = 1
) -> list[Game]:
    """Play every policy at every budget, with the branches after the baseline in several turned orders."""
    tolerance = world.bench.setup.evaluation.tolerance
    first, rest, plain = world.names[0], list(world.names[1:]), Policy()
    found: list[Game] = []
    for turn in range(min(orders, len(rest)) or 1):
        turned = world.reordered((first, *rest[turn:], *rest[:turn]))
        for budget in budgets:
            fixed: dict[int, Outcome] = {}
            pruned: dict[int, Outcome] = {}
            promised: dict[int, float] = {}
            for s in statics(turned.names, turned.positions, budget=budget):
                chosen = tuple(turned.names[: s.n_branches])
                look = turned.table(chosen, s.tokens)
                fixed[s.n_branches], promised[s.n_branches] = (chosen, s.tokens, look.k), look.loss
                spoil = spoilers(look, range(len(chosen)), draw_documents(look, plain), share=plain.drop)
                kept = tuple(name for i, name in enumerate(chosen) if i not in spoil)
                pruned[s.n_branches] = kept, s.tokens, turned.table(kept, s.tokens).k
            played = {
                name: play(turned, policy, budget=budget, tolerance=tolerance)
                for name, policy in policies.items()
                if policy.start * turned.positions[0] <= budget
            }
            order = tuple(turned.names)
            found.append(
                Game(budget=budget, order=order, policies=played, static=fixed, pruned=pruned, promised=promised)
            )
    return found


def measured(world: FinishedWorld, found: Sequence[Game]) -> dict[Outcome, DocumentLosses]:
    """All outcomes on test, in one read."""
    wanted = {
        outcome
        for game in found
        for outcome in (*map(outcome_of, game.policies.values()), *game.static.values(), *game.pruned.values())
    }
    rows = {outcome: world.row(outcome) for outcome in sorted(wanted)}
    scores = world.bench.scorer.test_losses(list(rows.values()))
    return {o: losses for o, row in rows.items() if (losses := scores[row.name].losses) is not None}


def replayed(found: Sequence[Game], losses: Mapping[Outcome, DocumentLosses], *, seed: int) -> list[Replayed]:
    """Regrets of one seed; means over orders of opening."""
    by_budget: dict[int, list[tuple[dict[str, float], dict[int, float]]]] = {}
    for game in found:
        mine = {name: losses[outcome_of(played)].loss() for name, played in game.policies.items()}
        fixed = {n: losses[outcome].loss() for n, outcome in game.static.items()}
        by_budget.setdefault(game.budget, []).append(above_best(mine, fixed))
    return [
        Replayed(
            seed=seed,
            budget=budget,
            policies=mean_over_orders([policies for policies, _ in parts]),
            static={
                int(n): r for n, r in mean_over_orders([{str(n): r for n, r in s.items()} for _, s in parts]).items()
            },
        )
        for budget, parts in by_budget.items()
    ]


def outcome_of(played: Played) -> Outcome:
    """Branches, t and K that a game ended with."""
    return played.live, played.tokens, played.k
