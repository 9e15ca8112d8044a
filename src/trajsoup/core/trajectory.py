"""The merged points of a branch: smooth a trajectory before asking for its direction (app:direction-estimator).

    pools -> matched token interval -> merged points (rows of W) -> direction (geometry.py)

The paper leaves the averaging rule and its window open and asks that they be stated: both are in the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trajsoup.core.pool import Pool, ranked
from trajsoup.core.selection import TAIL_K, TOP_K
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row, soup_row
from trajsoup.errors import GeometryError

RULES = frozenset({TAIL_K, TOP_K})
WINDOW = 4  # checkpoints per merged point, where the branches have as many
AVERAGING_RULE = TAIL_K


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPoint:
    """One point of a smoothed trajectory: the merge of a branch's checkpoints by `tokens`."""

    branch: str
    tokens: int
    row: Row


def merged_points(
    pool: Pool,
    *,
    rule: str = AVERAGING_RULE,
    window: int = 4,
    interval: tuple[int, int] | None = None,
    rank_by: Signal = Signal.LOSS,
) -> tuple[MergedPoint, ...]:
    """Merge `window` checkpoints at every saved position inside `interval` (tokens, both ends included).

    TAIL_K takes the latest `window` checkpoints at each position, TOP_K the best `window` so far: the anchors.
    Positions with fewer than `window` checkpoints behind them have no point.
    """
    if rule not in RULES:
        raise GeometryError(f"merged points by rule {rule!r} are not defined: use tail-k or top-k")
    if window < 1:
        raise GeometryError(f"the averaging window is {window}: it needs at least one checkpoint")
    first, last = interval or (0, max((c.tokens for c in pool.candidates), default=0))
    usable = pool.candidates if rule == TAIL_K else ranked(pool.candidates, rank_by=rank_by)
    points: list[MergedPoint] = []
    for tokens in sorted({c.tokens for c in usable if first <= c.tokens <= last}):
        if sum(c.tokens <= tokens for c in usable) < window:
            continue
        name = f"{pool.branch}@{tokens}"
        row = soup_row([pool], k=window, rule=rule, horizon=tokens, rank_by=rank_by, name=name)
        points.append(MergedPoint(branch=pool.branch, tokens=tokens, row=row))
    return tuple(points)


def merged_trajectories(
    pools: Sequence[Pool],
) -> tuple[int, tuple[int, int] | None, dict[str, tuple[MergedPoint, ...]], tuple[str, ...]]:
    """The window, the matched interval and the merged points of every branch, and what stood in the way."""
    window = max(min(WINDOW, min((len(pool.candidates) for pool in pools), default=2) - 1), 1)
    try:
        interval = matched_interval(pools, window=window)
    except GeometryError as error:
        return window, None, {}, (str(error),)
    merged = {pool.branch: merged_points(pool, window=window, interval=interval) for pool in pools}
    return window, interval, merged, ()


def matched_interval(pools: Sequence[Pool], *, window: int = 1) -> tuple[int, int]:
    """The token interval over which every branch has merged points: latest first one to earliest last one."""
    if not pools:
        raise GeometryError("no branch to match: name at least one run")
    firsts: list[int] = []
    lasts: list[int] = []
    for pool in pools:
        tokens = sorted(c.tokens for c in pool.candidates)
        if len(tokens) < window:
            raise GeometryError(
                f"branch {pool.branch!r} has {len(tokens)} checkpoints, fewer than the averaging window of {window}: "
                "use a shorter window, or leave the branch out"
            )
        firsts.append(tokens[window - 1])
        lasts.append(tokens[-1])
    first, last = max(firsts), min(lasts)
    if first > last:
        late, early = pools[firsts.index(first)].branch, pools[lasts.index(last)].branch
        raise GeometryError(
            f"the branches share no token interval: {late!r} has merged points from {first:,} tokens on, {early!r} "
            f"only to {last:,}. Compare branches at matched tokens, or leave one out"
        )
    return first, last
