"""What to merge, in the paper's terms, and the row of W it means for a study.

Branches, Choice -> screen -> admitted pools -> Row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trajsoup.core.coefficients import Coefficients
from trajsoup.core.pool import Pool, ranked, require_scores
from trajsoup.core.screening import Verdict, screen
from trajsoup.core.selection import NEEDS_K, Select
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row, Strategy, soup_row
from trajsoup.errors import ScreenError, SelectionError
from trajsoup.merge.branches import Branches


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to merge, in the paper's terms."""

    strategy: Strategy = Strategy.TRAJECTORY_SOUP
    k: int | None = None
    select: Select | None = None  # None: what the strategy prescribes
    coefficients: Coefficients = Coefficients.EQUAL
    rank_by: Signal = Signal.LOSS
    horizon: int | None = None  # in the study's unit of positions
    branch: str | None = None  # for single-merge
    screened: bool = True
    baseline: str | None = None
    tolerance: float | None = None
    force: tuple[str, ...] = ()  # branches to admit whatever the screen says, besides those of the study

    @property
    def rule(self) -> Select:
        """The selection in force."""
        return self.select or self.strategy.select


def choose(study: Branches, choice: Choice) -> tuple[Row, tuple[Verdict, ...], tuple[str, ...]]:
    """Screen the branches and build the row of W. Reads no weight."""
    pools = study.pools()
    notes: list[str] = []
    verdicts: tuple[Verdict, ...] = ()
    if choice.screened and len(pools) > 1:
        verdicts = screen(
            pools,
            baseline=choice.baseline or study.baseline,
            tolerance=study.tolerance if choice.tolerance is None else choice.tolerance,
            horizon=choice.horizon,
            force={*study.force, *choice.force},
        )
        admitted = {v.branch for v in verdicts if v.admitted}
        pools = tuple(pool for pool in pools if pool.branch in admitted)
        rejected = [v.branch for v in verdicts if not v.admitted]
        if rejected:
            notes.append(f"left out by the screen: {', '.join(rejected)} (--force BRANCH admits one, --no-screen all)")
        notes += [
            f"{v.branch} is forced in although its training loss is {v.loss_gap:+.1%} off the baseline's"
            for v in verdicts
            if v.forced
        ]
        notes += [
            f"{v.branch} trains to a much lower loss than the baseline ({v.loss_gap:+.1%}): check it for overfitting"
            for v in verdicts
            if v.suspiciously_low
        ]
        if not pools:
            raise ScreenError(
                "no branch passed the screen: raise --tolerance, choose another --baseline, --force a branch, or --no-screen"
            )
    if choice.strategy is Strategy.SINGLE_MERGE:
        pool = _one_branch(pools, choice)
        if choice.branch is None and len(pools) > 1:
            notes.append(
                f"single-merge takes branch {pool.branch!r}, whose K best checkpoints validate best on average"
            )
        pools = (pool,)
    elif choice.branch is not None:
        raise SelectionError("--branch belongs to --strategy single-merge: drop one of the two")
    if choice.rule not in NEEDS_K and choice.k is not None:
        notes.append(f"--k {choice.k} has no effect on selection {choice.rule.value!r}")
    row = soup_row(
        pools,
        k=choice.k,
        rule=choice.rule,
        scheme=choice.coefficients,
        horizon=choice.horizon,
        rank_by=choice.rank_by,
        name=choice.strategy.value,
    )
    return row, verdicts, tuple(notes)


def _one_branch(pools: Sequence[Pool], choice: Choice) -> Pool:
    if choice.branch is not None:
        for pool in pools:
            if pool.branch == choice.branch:
                return pool
        raise SelectionError(
            f"there is no admitted branch {choice.branch!r}: choose from {', '.join(p.branch for p in pools)}"
        )
    if len(pools) == 1:
        return pools[0]

    require_scores([c for pool in pools for c in pool.until(choice.horizon).candidates], rank_by=choice.rank_by)

    def mean_score(pool: Pool) -> float:
        best = ranked(pool.until(choice.horizon).candidates, rank_by=choice.rank_by)[: choice.k]
        scores = [score for c in best if (score := c.score(choice.rank_by)) is not None]
        if not scores:
            return float("inf")
        mean = sum(scores) / len(scores)
        return mean if choice.rank_by is Signal.LOSS else -mean

    return min(pools, key=lambda pool: (mean_score(pool), pool.branch))
