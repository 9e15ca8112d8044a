"""What a method may choose from: branches and where they stop, K; and how it ranks. A study leaves much free, `merge` little.

Freedom -> pools, stops -> options (rows of W)        reads no weight, and no score but the ranking's
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trajsoup.core.coefficients import EQUAL
from trajsoup.core.methods.asking import Option
from trajsoup.core.pool import Pool
from trajsoup.core.selection import SELECTIONS, usable
from trajsoup.core.signal import Signal
from trajsoup.core.soup import soup_row
from trajsoup.core.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Branches that all stop at one horizon."""

    branches: tuple[str, ...]
    horizon: int | None = None  # tokens of each; None: each where it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedom:
    """Within what a method chooses."""

    pools: tuple[Pool, ...]  # with scores
    stops: tuple[Stop, ...]  # simplest first: ties go to the first
    ks: tuple[int, ...] = ()
    rank_by: Signal = Signal.LOSS
    select: str | None = None  # None: as the method is defined
    weights: str = EQUAL
    window: Window | None = None  # the end of each branch; None: as the method is defined
    fork_point: str | None = None  # its key, where it is known: a row may name it
    free: tuple[str, ...] = ()  # what of this somebody left open, in words: branch, branches, horizon, k

    def at(self, stop: Stop) -> tuple[Pool, ...]:
        """The pools of a stop: C_n(t) of each branch, without what diverged."""
        return tuple(usable(pool).until(stop.horizon) for pool in self.pools if pool.branch in stop.branches)

    def options(self, select: str) -> tuple[Option, ...]:
        """The rows of a selection at every stop and every K that the branches have there."""
        select = self.select or select
        found: list[Option] = []
        for stop in self.stops:
            ks: tuple[int | None, ...] = (None,)
            if SELECTIONS.find(select).needs_k:
                have = min((len(pool.candidates) for pool in self.at(stop)), default=0)
                ks = tuple(k for k in self.ks if k <= have) or self.ks[:1] or (None,)  # too few: refused by name
            found += [self._option(stop, select, k) for k in ks]
        return tuple(found)

    def option(
        self,
        weights: Mapping[str, float],
        *,
        stop: Stop,
        k: int | None = None,
        groups: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Option:
        """A row of checkpoints of branches that stop there."""
        tokens = [stop.horizon or max(c.tokens for c in pool.candidates) for pool in self.at(stop)]
        return Option(
            weights=dict(weights),
            k=k,
            horizon=stop.horizon,
            branches=stop.branches,
            budget_tokens=sum(tokens),
            groups=groups,
            apart=any(c.key in weights for pool in self.pools for c in pool.apart.get(stop.horizon or 0, ())),
        )

    def _option(self, stop: Stop, select: str, k: int | None) -> Option:
        pools = [pool for pool in self.pools if pool.branch in stop.branches]
        row = soup_row(pools, k=k, rule=select, scheme=self.weights, horizon=stop.horizon, rank_by=self.rank_by)
        return self.option(row.weights, stop=stop, k=k)
