"""Limited minus serial over the budget: from which T on do N branches of T/N beat one of T? (app:fixed-budget)

    budget T -> N branches of T/N, K chosen        against the serial run of T: K free, and as many merged as in the soup

A long serial run with many checkpoints merged acts like more trajectories, so both are shown. Branches are prescribed:
the baseline alone, and the first N that the screen admits where they stop. Only K is chosen, on validation, on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trajsoup.core.budget import Setting
from trajsoup.core.choosing import choose
from trajsoup.core.methods.asking import Answers, Asking, Decision, Option, Score, best_of
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import Method
from trajsoup.core.selection import TOP_K, usable
from trajsoup.study.choosing.entries import Axis, Chosen, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SINGLE, SOUP
from trajsoup.study.sweeps.table import Pairs, Sweep, sweep

SERIAL = "Serial run, K free"


def _pairs(chosen: Sequence[Chosen]) -> Pairs:
    """Every soup against the serial run of its budget: free, and of its merge size."""
    serial = {c.entry.beside: c for c in chosen if c.entry.strategy == SINGLE.strategy}
    soups = (c for c in chosen if c.entry.strategy == SOUP.strategy)
    return [(c, serial[beside]) for c in soups for beside in (c.entry.beside[:1], c.entry.beside)]


@sweep(
    name="crossing",
    title="Limited minus serial over the budget",
    paper="app:fixed-budget",
    axis="token budget",
    matched="budget",
    pairs=_pairs,
    own_section=True,
)
def crossing(field: Field, asked: Sweep) -> Sequence[Entry]:
    """N branches of T/N against one of T, at every budget T and every N for which T/N was saved."""
    return [entry for budget in field.horizons for entry in _Budget.of(field, budget).entries(asked)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """What may be merged with T tokens: by one branch, and by N."""

    field: Field
    tokens: int  # T
    soups: Mapping[int, Freedom]  # by N

    @classmethod
    def of(cls, field: Field, tokens: int) -> _Budget:
        soups: dict[int, Freedom] = {}
        for n in range(2, len(field.pools) + 1):
            at = tokens // n
            team = field.admitted_at(at)[:n]
            if tokens % n == 0 and at in field.positions() and len(team) == n:
                freedom = field.freedom(SOUP, [Stop(branches=team, horizon=at)], free=("k",))
                if freedom.stops:
                    soups[n] = freedom
        return cls(field=field, tokens=tokens, soups=soups)

    def entries(self, asked: Sweep) -> list[Entry]:
        """The serial run, whatever N the budget allows: how it saturates is shown beside the differences."""
        found = [self._entry(asked, "serial", SERIAL, SINGLE, self.serial)]
        for n, freedom in self.soups.items():
            team = "+".join(freedom.stops[0].branches)
            soup = self._entry(asked, f"limited/{team}", f"{n} branches (Limited)", SOUP, lambda f=freedom: SOUP.ask(f))
            same = f"Serial run, as many merged as by {n} branches"
            matched = self._entry(asked, f"serial/{team}", same, SINGLE, lambda n=n: self.matched(n))
            found.append(replace(soup, setting=Setting.LIMITED, beside=(self.tokens, n)))
            found.append(replace(matched, beside=(self.tokens, n)))
        return found

    def serial(self) -> Asking:
        """The serial run's best merge: among the study's K, all its checkpoints, and the sizes of the soups beside it."""
        grid = self._serial({*self.field.ks, self._have})
        scores = yield Score(options=(*grid, *(o for freedom in self.soups.values() for o in freedom.options(TOP_K))))
        sizes = {n * (self._best(freedom, scores).k or 1) for n, freedom in self.soups.items()}
        options = self._serial({*self.field.ks, self._have, *sizes})
        return (yield from best_of(options, rank_by=self.field.rank_by, free=("k",)))

    def matched(self, n: int) -> Asking:
        """The serial run with as many checkpoints merged as in the soup that validation chooses."""
        freedom = self.soups[n]
        scores = yield Score(options=freedom.options(TOP_K))
        (option,) = self._serial({n * (self._best(freedom, scores).k or 1)})
        return Decision(option=option)

    def _best(self, freedom: Freedom, scores: Answers) -> Option:
        options = {option.name: option for option in freedom.options(TOP_K)}
        return options[choose({name: scores[name] for name in options}, rank_by=self.field.rank_by).name]

    @property
    def _have(self) -> int:
        (pool,) = self.field.chosen([self.field.baseline])
        return len(usable(pool).until(self.tokens).candidates)

    def _serial(self, ks: set[int]) -> tuple[Option, ...]:
        """Merges of the serial run, none larger than the run."""
        within = replace(self.field, ks=tuple(sorted({min(k, self._have) for k in ks})))
        return within.freedom(SINGLE, [Stop(branches=(self.field.baseline,), horizon=self.tokens)]).options(TOP_K)

    def _entry(self, asked: Sweep, key: str, series: str, method: Method, ask: Callable[[], Asking]) -> Entry:
        return Entry(
            key=f"{key}@{self.tokens}",
            label=series,
            strategy=method.strategy,
            ask=ask,
            sweep=asked.name,
            at=Axis(series=series, x=float(self.tokens)),
            beside=(self.tokens,),
        )
