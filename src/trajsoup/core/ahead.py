"""Does a short run tell which recipes average well at the end? Gains of pairs early against the same pairs late.

    losses of anchors and soups at two horizons -> gaps of pairs -> rank agreement, predictions of left-out recipes
                                                -> the set picked early, by what it gained late

A finished study answers it with what its theory stage has scored; nothing is trained or scored for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trajsoup.core.estimators import SoupLosses, member_gap
from trajsoup.core.numerics import ranks
from trajsoup.core.prediction import predicted_loss
from trajsoup.errors import TheoryError

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What the earlier horizon said of the later one."""

    pairs: int
    spearman: float | None  # of early and late gaps; None: fewer than three pairs, or all alike
    spearman_of_cosine: float | None  # of 1 - cosine early and the late gap; None: not measured
    error: float | None  # of late gaps of a left-out recipe, predicted from its early ones; root mean square
    error_of_mean: float | None  # the same when every pair is promised the mean of the others
    picked: tuple[str, ...]  # the set of largest promised gain early
    promised_gain: float  # what it was promised early over the best of its anchors
    ahead_of_next: float | None  # that, less the promise of the second set; near 0 the pick is by chance; None: one set
    picked_gain: float  # what it gained late over the best of its anchors
    best_gain: float  # of the best set late
    mean_gain: float  # over all sets

    @property
    def share_of_best(self) -> float | None:
        """Of the best set's gain; None where no set gained."""
        return self.picked_gain / self.best_gain if self.best_gain > 0 else None


def ahead(
    early: SoupLosses,
    late: SoupLosses,
    *,
    k_early: int,
    k_late: int,
    n_branches: int,
    cosines: Mapping[Pair, float] | None = None,
) -> Ahead:
    """Compare gaps of the pairs that both horizons have, and follow the set of N that the early one picks."""
    names = sorted(set(early.branches(k_early)) & set(late.branches(k_late)))
    first, last = pair_gaps(early, names, k=k_early), pair_gaps(late, names, k=k_late)
    pairs = [pair for pair in first if pair in last]
    if len(pairs) < len(names) * (len(names) - 1) // 2 or len(names) < max(n_branches, 2):
        raise TheoryError(
            f"{len(names)} branches and {len(pairs)} of their pairs were scored at both horizons: score every pair"
        )
    known = {p: cosines[p] for p in pairs if p in cosines} if cosines else {}
    sets = list(itertools.combinations(names, n_branches))
    promised = {s: _promised(early, s, k=k_early) for s in sets}
    gained = {s: _gained(late, s, k=k_late) for s in sets}
    picked, *others = sorted(sets, key=lambda s: -promised[s])
    mine, plain = _left_out(names, first, last)
    return Ahead(
        pairs=len(pairs),
        spearman=spearman([first[p] for p in pairs], [last[p] for p in pairs]),
        spearman_of_cosine=spearman([1 - known[p] for p in known], [last[p] for p in known]) if known else None,
        error=mine,
        error_of_mean=plain,
        picked=picked,
        promised_gain=promised[picked],
        ahead_of_next=promised[picked] - promised[others[0]] if others else None,
        picked_gain=gained[picked],
        best_gain=max(gained.values()),
        mean_gain=math.fsum(gained.values()) / len(gained),
    )


def pair_gaps(losses: SoupLosses, names: list[str], *, k: int) -> dict[Pair, float]:
    """Mean loss of the two anchors minus that of their midpoint, for every pair that was scored."""
    anchors = {name: losses.soups[frozenset([name]), k] for name in names}
    return {
        (a, b): member_gap([anchors[a], anchors[b]], merged=losses.soups[frozenset([a, b]), k])
        for a, b in itertools.combinations(names, 2)
        if (frozenset([a, b]), k) in losses.soups
    }


def spearman(first: ArrayLike, second: ArrayLike) -> float | None:
    """The correlation of ranks; None where fewer than three values or no differences leave it undefined."""
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def _promised(losses: SoupLosses, names: tuple[str, ...], *, k: int) -> float:
    """The gain over the best anchor that anchors and pairs promise."""
    anchors = {name: losses.soups[frozenset([name]), k] for name in names}
    pairs = {frozenset(pair): losses.soups[frozenset(pair), k] for pair in itertools.combinations(names, 2)}
    return min(anchors.values()) - predicted_loss(dict.fromkeys(names, 1 / len(names)), anchors=anchors, pairs=pairs)


def _gained(losses: SoupLosses, names: tuple[str, ...], *, k: int) -> float:
    """The measured gain over the best anchor; promised by pairs where the soup itself was not scored."""
    whole = losses.soups.get((frozenset(names), k))
    if whole is None:
        return _promised(losses, names, k=k)
    return min(losses.soups[frozenset([name]), k] for name in names) - whole


def _left_out(
    names: list[str], first: Mapping[Pair, float], last: Mapping[Pair, float]
) -> tuple[float | None, float | None]:
    """Leave each recipe out: late gaps of its pairs from early ones, scaled as in the other pairs; and by their mean."""
    mine: list[float] = []
    plain: list[float] = []
    for name in names:
        others = [p for p in first if name not in p]
        below = math.fsum(first[p] ** 2 for p in others)
        if not others or below == 0:
            continue
        scale = math.fsum(first[p] * last[p] for p in others) / below
        mean = math.fsum(last[p] for p in others) / len(others)
        for p in first:
            if name in p:
                mine.append(last[p] - scale * first[p])
                plain.append(last[p] - mean)
    if not mine:
        return None, None
    return tuple(math.sqrt(math.fsum(e * e for e in found) / len(found)) for found in (mine, plain))  # type: ignore[return-value]
