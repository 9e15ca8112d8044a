"""What a study may choose from: scored pools, the screen's answer, horizons and Ks.

    Field, branches, setting -> stops -> Freedom (what a method is given)        reads no weight and no score

Limited budgets are aggregate (N branches stop at T / N), Extended ones are per branch (sec:setup).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trajsoup.core.budget import Setting
from trajsoup.core.coefficients import EQUAL
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Method
from trajsoup.core.pool import Pool
from trajsoup.core.selection import SELECTIONS, usable
from trajsoup.core.signal import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Pools with validation scores, the screen's answer, and what may be chosen."""

    pools: tuple[Pool, ...]  # every branch with checkpoints
    admitted: tuple[str, ...]  # by the screen at the full horizon
    baseline: str
    ks: tuple[int, ...]
    n_horizons: int  # into how many equal parts the full horizon is divided
    rank_by: Signal = Signal.LOSS
    fork_point: str | None = None  # its key, where rows may name it
    methods: tuple[str, ...] = ()  # besides those that every study shows
    leaves_out: tuple[str, ...] = ()  # methods that this study cannot show
    admitted_early: Mapping[int, tuple[str, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[str, ...]]
    )  # position -> who passes the screen there; a position without an entry: who passes at the full horizon

    @property
    def horizon(self) -> int:
        """T of the Limited setting: what every admitted branch has reached."""
        return min(max(c.tokens for c in pool.candidates) for pool in self.chosen(self.admitted))

    @property
    def horizons(self) -> tuple[int, ...]:
        """Equal parts of the full horizon, each moved down to a position where every admitted branch saved."""
        parts = [self.horizon * (i + 1) // self.n_horizons for i in range(self.n_horizons)]
        found = {at for part in parts if (at := self.last_by(part)) is not None}
        return tuple(sorted(found)) or (self.horizon,)

    @property
    def all_together(self) -> Stop:
        """Every admitted branch at the full horizon."""
        return Stop(branches=self.admitted, horizon=self.horizon)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What every checkpoint was scored by: loss, and accuracy where there are items."""
        every = [c for pool in self.pools for c in pool.candidates]
        return tuple(s for s in Signal if all(c.score(s) is not None for c in every)) or (self.rank_by,)

    def positions(self) -> set[int]:
        """Where every admitted branch may stop."""
        return set.intersection(*(set(pool.positions) for pool in self.chosen(self.admitted)))

    def last_by(self, tokens: int) -> int | None:
        """The last position by `tokens` at which every admitted branch saved."""
        return max((p for p in self.positions() if p <= tokens), default=None)

    def admitted_at(self, horizon: int) -> tuple[str, ...]:
        """Who passes the screen at the horizon that is used: J(theta_n(t)) <= epsilon (sec:problem-formulation)."""
        return self.admitted if horizon >= self.horizon else self.admitted_early.get(horizon, self.admitted)

    def chosen(self, branches: Sequence[str]) -> tuple[Pool, ...]:
        """The pools of these branches."""
        return tuple(pool for pool in self.pools if pool.branch in branches)

    def subsets(self, *, at_most: int | None = None) -> list[tuple[str, ...]]:
        """Subsets of the admitted branches; small ones first."""
        sizes = range(1, (len(self.admitted) if at_most is None else at_most) + 1)
        return [subset for size in sizes for subset in itertools.combinations(self.admitted, size)]

    def branch_horizon(self, budget: int, *, n_branches: int, setting: Setting) -> int | None:
        """t of N branches at a budget of sec:setup: T / N when limited, the budget itself when extended."""
        return self.last_by(budget // n_branches if setting is Setting.LIMITED else budget)

    def stops(self, sizes: Iterable[int], *, setting: Setting, budget: int) -> tuple[Stop, ...]:
        """Every choice of N branches that may be merged at a budget: those that the screen admits where they stop."""
        found: list[Stop] = []
        for n in sizes:
            at = self.branch_horizon(budget, n_branches=n, setting=setting)
            if at is not None:
                found += [Stop(branches=b, horizon=at) for b in itertools.combinations(self.admitted_at(at), n)]
        return tuple(found)

    def why_no_soup(self, setting: Setting) -> str | None:
        """Why no two branches can be merged at the budget of one run, and what would change that; None: two can."""
        if len(self.pools) < 2:
            return "it has one branch"
        if len(self.admitted) < 2:
            return f"of {len(self.pools)} branches the screen admits {len(self.admitted)}"
        pools, unit = self.chosen(self.admitted), self.pools[0].unit
        ends = {pool.branch: max(c.tokens for c in pool.candidates) for pool in pools}
        given, cure = f"{self.horizon:,} {unit}", "save checkpoints more often"
        if len({*ends.values()}) > 1:
            shortest = min(ends, key=lambda branch: ends[branch])
            given, cure = f"{given}, where {shortest!r} ends", f"leave out {shortest!r}, or {cure}"
        given = f"half of {given}" if setting is Setting.LIMITED else given
        at = self.branch_horizon(self.horizon, n_branches=2, setting=setting)
        if at is None:
            first = ", ".join(f"{pool.branch!r} at {min(c.tokens for c in pool.candidates):,}" for pool in pools)
            return f"each branch stops at {given}, and by then they never saved at the same {unit} (first: {first}): {cure}"
        if len(self.admitted_at(at)) < 2:
            return f"each branch stops at {at:,} {unit}, where the screen admits {len(self.admitted_at(at))} of them"
        enough = min(self.ks)
        few = [b for b in self.admitted_at(at) if self._have(Stop(branches=(b,), horizon=at)) < enough]
        if len(self.admitted_at(at)) - len(few) >= 2:
            return None
        named = ", ".join(map(repr, few))
        return (
            f"each branch stops at {given}; the last checkpoint of all by then is at {at:,}, where {named} had fewer than "
            f"K = {enough}: add a smaller K to evaluate.ks, {cure}"
        )

    def freedom(
        self,
        method: Method,
        stops: Sequence[Stop],
        *,
        free: tuple[str, ...] = (),
        select: str | None = None,
        weights: str = EQUAL,
    ) -> Freedom:
        """What a method is given: these stops, as far as the branches have checkpoints enough there, and every K."""
        takes_k = method.takes_k and (select is None or SELECTIONS[select].needs_k)
        enough = min(self.ks) if takes_k else 1
        return Freedom(
            pools=self.pools,
            stops=tuple(stop for stop in stops if self._have(stop) >= enough),
            ks=self.ks,
            rank_by=self.rank_by,
            select=select,
            weights=weights,
            fork_point=self.fork_point,
            free=tuple(name for name in free if takes_k or name != "k"),
        )

    def _have(self, stop: Stop) -> int:
        return min(len(usable(pool).until(stop.horizon).candidates) for pool in self.chosen(stop.branches))
