"""Play a policy against a world that can be trained or replayed: look, decide, do it, until the budget is spent.

    World (positions, recipes in order, tables of scores) + Policy -> decisions -> the branches and t that it ends with

The same loop allocates a study that trains and replays one that is finished, so a replay is what would have happened. It
is deterministic: a killed study that is played again makes the same decisions from the same scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trajsoup.core.adaptive import Course, Decision, Look, Move, Policy, Table, decide
from trajsoup.errors import TheoryError


class World(Protocol):
    """Recipes that can be trained to positions, and scored there."""

    @property
    def names(self) -> Sequence[str]:
        """Recipes in the order in which they are opened; the first is the baseline."""
        ...

    @property
    def positions(self) -> Sequence[int]:
        """Tokens at which there may be a look, ascending; the last is the longest that a branch may run."""
        ...

    def reach(self, branches: Sequence[str], tokens: int) -> Mapping[str, str]:
        """Bring branches to a position, unless they have been there; those that did not arrive (diverged), and why."""
        ...

    def table(self, branches: Sequence[str], tokens: int) -> Table:
        """Score anchors and pairs of branches at a position, at the K of least loss of their soup."""
        ...

    def course(self, branch: str, tokens: int) -> Course:
        """J of a branch, up to a position."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a policy spent a budget."""

    decisions: tuple[Decision, ...]
    live: tuple[str, ...]  # whose soup is the outcome
    tokens: int  # t of each
    k: int
    trained: Mapping[str, int]  # branch -> tokens paid for it: beyond t where the game went back, all where it was lost
    loss: float  # of that soup, on what the decisions were made on
    stopped: tuple[str, ...]
    lost: Mapping[str, str]  # branch -> why it did not arrive

    @property
    def spent(self) -> int:
        """Tokens of all branches together."""
        return sum(self.trained.values())


def play(world: World, policy: Policy, *, budget: int, tolerance: float) -> Played:
    """Spend the budget (tokens over all branches) by the policy."""
    positions, waiting = list(world.positions), list(world.names)
    start = min(policy.start, len(waiting))
    if start * positions[0] > budget:
        raise TheoryError(
            f"{start} branches to the first look at {positions[0]:,} tokens cost more than the budget of {budget:,}: look "
            "earlier, or raise it"
        )
    live = [waiting.pop(0) for _ in range(start)]
    at, end = 0, len(positions) - 1
    trained: dict[str, int] = {}
    decisions: list[Decision] = []
    suspected: dict[int, tuple[str, ...]] = {}  # by position
    lost: dict[str, str] = {}

    def reach(branches: Sequence[str]) -> None:
        trained.update(dict.fromkeys(branches, positions[at]))
        missing = world.reach(branches, positions[at])
        lost.update(missing)
        live[:] = [name for name in live if name not in missing]
        if world.names[0] in missing:
            raise TheoryError(
                f"the baseline {world.names[0]!r} did not arrive ({missing[world.names[0]]}): mend its recipe"
            )

    reach(live)
    while True:
        look = Look(
            live=tuple(live),
            tables=tuple(world.table(live, p) for p in positions[max(at + 1 - policy.looks, 0) : at + 1]),
            left=budget - sum(trained.values()),
            step=positions[at + 1] - positions[at] if at < end else None,
            waiting=len(waiting),
            courses={name: world.course(name, positions[at]) for name in live[1:]},
            suspected=suspected.get(at - 1, ()),
            spread=next((d.gains.spread for d in reversed(decisions) if d.gains.spread is not None), None),
        )
        made = decide(look, policy, tolerance=tolerance, horizon=positions[end])
        decisions.append(made)
        suspected[at] = made.suspected
        live[:] = [name for name in live if name not in made.stopped]
        if made.move is Move.END:
            break
        if made.move is Move.BACK:
            at = end = at - 1
        elif made.move is Move.OPEN:
            live.append(waiting.pop(0))
            reach(live[-1:])
        else:
            at += 1
            reach(live)
    last = world.table(live, positions[at])
    return Played(
        decisions=tuple(decisions),
        live=tuple(live),
        tokens=positions[at],
        k=last.k,
        trained=trained,
        loss=last.loss,
        stopped=tuple(name for made in decisions for name in made.stopped),
        lost=lost,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """N branches of t tokens, decided before anything was trained."""

    n_branches: int
    tokens: int


def statics(names: Sequence[str], positions: Sequence[int], *, budget: int) -> tuple[Static, ...]:
    """For every N the longest t that the budget and the positions allow."""
    found: list[Static] = []
    for n in range(1, len(names) + 1):
        reached = [p for p in positions if n * p <= budget]
        if reached:
            found.append(Static(n_branches=n, tokens=reached[-1]))
    return tuple(found)
