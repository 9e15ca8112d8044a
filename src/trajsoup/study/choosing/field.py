"""What entries are made of: scored pools, the screen's answer, and the rows of W that a strategy may choose from.

    Field, branches, horizon -> Option (one for each K)        reads no weight and no score but the ranking

Limited budgets are aggregate (N branches stop at T / N), Extended ones are per branch (sec:setup).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.budget import Setting
from trajsoup.core.coefficients import Coefficients
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.selection import NEEDS_K, Select
from trajsoup.core.soup import Strategy, soup_row
from trajsoup.study.choosing.entries import Option
from trajsoup.study.file.evaluation import EvaluationPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Pools with validation scores, the screen's answer, and what may be chosen."""

    pools: tuple[Pool, ...]  # every branch with checkpoints
    admitted: tuple[str, ...]
    baseline: str
    evaluation: EvaluationPlan

    @property
    def horizon(self) -> int:
        """T of the Limited setting: what every admitted branch has reached."""
        return min(max(c.tokens for c in pool.candidates) for pool in self.chosen(self.admitted))

    @property
    def horizons(self) -> tuple[int, ...]:
        """Equal parts of the full horizon, each moved down to a position where every admitted branch saved."""
        parts = [self.horizon * (i + 1) // self.evaluation.horizons for i in range(self.evaluation.horizons)]
        found = {at for part in parts if (at := self.last_by(part)) is not None}
        return tuple(sorted(found)) or (self.horizon,)

    def last_by(self, tokens: int) -> int | None:
        """The last position by `tokens` at which every admitted branch saved."""
        shared = set.intersection(*({c.tokens for c in pool.candidates} for pool in self.chosen(self.admitted)))
        return max((p for p in shared if p <= tokens), default=None)

    def chosen(self, branches: Sequence[str]) -> tuple[Pool, ...]:
        """The pools of these branches."""
        return tuple(pool for pool in self.pools if pool.branch in branches)

    def subsets(self, *, at_least: int) -> list[tuple[str, ...]]:
        """Subsets of the admitted branches, small ones first."""
        sizes = range(at_least, len(self.admitted) + 1)
        return [subset for size in sizes for subset in itertools.combinations(self.admitted, size)]

    def alone(self) -> list[tuple[str, ...]]:
        """Every admitted branch by itself."""
        return [(branch,) for branch in self.admitted]


def branch_horizon(field: Field, budget: int, *, n_branches: int, setting: Setting) -> int | None:
    """t of N branches at a budget of sec:setup: T / N when limited, the budget itself when extended."""
    return field.last_by(budget // n_branches if setting is Setting.LIMITED else budget)


def options_within(
    field: Field, strategy: Strategy, subsets: Sequence[tuple[str, ...]], *, setting: Setting
) -> tuple[Option, ...]:
    """Every horizon within the full budget and every K."""
    found: list[Option] = []
    for subset in subsets:
        limit = branch_horizon(field, field.horizon, n_branches=len(subset), setting=setting)
        if limit is not None:
            for h in sorted({h for h in field.horizons if h <= limit} | {limit}):
                found += options_at(field, strategy, subset, h)
    return _each_once(found)


def options_at_budget(
    field: Field, strategy: Strategy, subsets: Sequence[tuple[str, ...]], *, budget: int, setting: Setting
) -> tuple[Option, ...]:
    """Every subset of branches that can stop at this budget, and every K."""
    found: list[Option] = []
    for subset in subsets:
        at = branch_horizon(field, budget, n_branches=len(subset), setting=setting)
        if at is not None:
            found += options_at(field, strategy, subset, at)
    return _each_once(found)


def options_at(
    field: Field,
    strategy: Strategy,
    branches: tuple[str, ...],
    horizon: int,
    *,
    rule: Select | None = None,
    scheme: Coefficients = Coefficients.EQUAL,
) -> tuple[Option, ...]:
    """The options that differ in K alone."""
    pools = field.chosen(branches)
    rule = rule or strategy.select
    have = min(sum(_is_usable(c) for c in pool.until(horizon).candidates) for pool in pools)
    if have == 0:
        return ()
    ks: list[int | None] = [k for k in field.evaluation.ks if k <= have] if rule in NEEDS_K else [None]
    found: list[Option] = []
    for k in ks:
        row = soup_row(pools, k=k, rule=rule, scheme=scheme, horizon=horizon, rank_by=field.evaluation.rank_by)
        found.append(option_of(row.weights, k=k, horizon=horizon, branches=branches))
    return tuple(found)


def option_of(weights: Mapping[str, float], *, k: int | None, horizon: int, branches: tuple[str, ...]) -> Option:
    """A row of branches that all stop at the horizon."""
    return Option(weights=dict(weights), k=k, horizon=horizon, branches=branches, budget_tokens=horizon * len(branches))


def checkpoint_option(candidate: Candidate) -> Option:
    """The row that is one checkpoint."""
    return option_of({candidate.key: 1.0}, k=None, horizon=candidate.tokens, branches=(candidate.branch,))


def _each_once(options: Sequence[Option]) -> tuple[Option, ...]:
    return tuple({option.name: option for option in options}.values())


def _is_usable(candidate: Candidate) -> bool:
    """A checkpoint that diverged scored NaN: no rule may take it."""
    return all(v is None or math.isfinite(v) for v in (candidate.val_loss, candidate.accuracy))
