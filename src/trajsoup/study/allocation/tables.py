"""What a look at some branches knows: anchors and pairs at the K that is best for their soup, and J against tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trajsoup.core.adaptive import Course, Table
from trajsoup.core.methods.asking import Scoring
from trajsoup.core.pool import Pool
from trajsoup.core.screening import screen
from trajsoup.core.selection import usable as finite
from trajsoup.core.signal import Signal
from trajsoup.core.soup import Row, soup_row
from trajsoup.errors import StudyError, UncomparableError

Probe = Mapping[tuple[str, int], float | None]  # branch, tokens -> loss on training documents


def look_positions(saved: Collection[int], *, looks: int, fewest: int) -> tuple[int, ...]:
    """Equal parts of the last position, each moved down to where all saved; and half of the first.

    At that half nothing can be decided yet: it is where the first look's slope begins. None comes before as many
    checkpoints were saved as the smallest K takes.
    """
    usable = sorted(saved)[fewest - 1 :]
    if not usable:
        raise StudyError(
            f"branches save {len(saved)} times, and the smallest of evaluate.ks is {fewest}: save more often, or lower it"
        )
    parts = [usable[-1] * (i + 1) // looks for i in range(looks)]
    found = {max(p for p in usable if p <= part) for part in parts if part >= usable[0]}
    half = max((p for p in usable if p <= min(found) // 2), default=None)
    return tuple(sorted(found | ({half} if half is not None else set())))


def look_rows(pools: Sequence[Pool], *, tokens: int, ks: Sequence[int]) -> dict[int, dict[tuple[int, ...], Row]]:
    """By K: the row of each branch and of each pair, by their places. Ranked by what is known at `tokens`."""
    have = min(len(finite(pool).until(tokens).candidates) for pool in pools)
    groups = [(i,) for i in range(len(pools))] + list(itertools.combinations(range(len(pools)), 2))
    return {
        k: {
            group: soup_row(
                [pools[i] for i in group],
                k=k,
                horizon=tokens,
                rank_by=Signal.LOSS,
                name=f"look/{'+'.join(sorted(pools[i].branch for i in group))}/K={k}@{tokens}",
            )
            for group in groups
        }
        for k in ks
        if k <= have
    }


def look_table(pools: Sequence[Pool], *, tokens: int, ks: Sequence[int], scoring: Scoring) -> Table:
    """Score them all together; take the K at which the soup of all branches is promised the least loss."""
    rows = look_rows(pools, tokens=tokens, ks=ks)
    if not rows:
        raise StudyError(
            f"a branch has fewer than {min(ks)} checkpoints by {tokens:,} tokens, so no soup can be made at this look: look "
            "later, or save more often"
        )
    scores = scoring([row for by_group in rows.values() for row in by_group.values()])

    def table(k: int) -> Table:
        found = {group: scores[row.name].losses for group, row in rows[k].items()}
        known = {group: losses for group, losses in found.items() if losses is not None}
        return Table(
            tokens=tokens,
            k=k,
            anchors=np.array([known[i,].nll for i in range(len(pools))]),
            pairs={(group[0], group[1]): losses.nll for group, losses in known.items() if len(group) == 2},
            targets=known[0,].targets.astype(np.float64),
        )

    tables = [table(k) for k in rows]
    finite = [t for t in tables if np.isfinite(t.loss)]
    return min(finite or tables, key=lambda t: (t.loss, t.k))


def course(pools: Sequence[Pool], branch: str, probe: Probe, *, baseline: str, tokens: int) -> Course:
    """J against tokens where both were scored, up to a position; its spread is the screen's, of smoothed losses there.

    Where the screen can compare nothing there, it is infinite: nobody can tell.
    """
    gaps: list[tuple[int, float]] = []
    for (name, at), loss in sorted(probe.items()):
        reference = probe.get((baseline, at))
        if name == branch and at <= tokens and loss is not None and reference:
            gaps.append((at, loss / reference - 1))
    both = [pool.until(tokens) for pool in pools if pool.branch in (branch, baseline)]
    try:
        spread = next(v.spread for v in screen(both, baseline=baseline) if v.branch == branch)
    except UncomparableError:
        spread = math.inf
    return Course(gaps=gaps, spread=spread or 0.0)
