"""What a policy would have cost above the best static allocation of the same tokens, when tuned on other seeds.

    losses of every policy and of every static N, by seed and budget -> regrets, leaving the seed itself out of every choice

"The best static" is that of hindsight, seed by seed: nobody could have chosen it. What could have been chosen beforehand is
the N that was best in the other seeds, and it stands beside the policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.errors import TheoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One seed at one budget: losses, all on the same documents; means over orders of opening where there are several."""

    seed: int
    budget: int
    policies: Mapping[str, float]  # regret of each policy
    static: Mapping[int, float]  # N -> regret


def tuned_elsewhere(replays: Sequence[Replayed]) -> dict[int, str]:
    """Seed -> the policy that was best in the other seeds, over all budgets: one that knows the budget is another policy."""
    seeds = sorted({r.seed for r in replays})
    if len(seeds) < 2:
        raise TheoryError(f"{len(seeds)} seed was replayed, and tuning needs others: replay two at least")
    return {seed: _best_policy([r for r in replays if r.seed != seed]) for seed in seeds}


def static_elsewhere(replays: Sequence[Replayed], *, budget: int) -> dict[int, int]:
    """Seed -> the static N that was best in the other seeds at this budget."""
    at = [r for r in replays if r.budget == budget]
    return {r.seed: best_static([other for other in at if other.seed != r.seed]) for r in at}


def above_best(policies: Mapping[str, float], static: Mapping[int, float]) -> tuple[dict[str, float], dict[int, float]]:
    """Regrets of losses: above the least loss of a static allocation."""
    least = min(static.values())
    return {name: loss - least for name, loss in policies.items()}, {n: loss - least for n, loss in static.items()}


def mean_over_orders(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean regret of each policy."""
    return {name: math.fsum(part[name] for part in parts) / len(parts) for name in parts[0]}


def _best_policy(replays: Sequence[Replayed]) -> str:
    names = list(replays[0].policies)
    return min(names, key=lambda name: math.fsum(r.policies[name] for r in replays))


def best_static(replays: Sequence[Replayed]) -> int:
    """The N of least regret over these seeds, among those that every one of them allows."""
    shared = [n for n in sorted(replays[0].static) if all(n in r.static for r in replays)]
    return min(shared, key=lambda n: math.fsum(r.static[n] for r in replays))
