"""V_intra, V_inter and the bias from losses alone: no weight, no curvature, no gradient.

    losses of checkpoints, anchors and soups -> member gaps -> variances per K -> bias, the worth of a branch

One identity carries everything. In the local quadratic model, for members x_i of weights w_i that sum to one,

    sum_i w_i L(x_i) - L(sum_i w_i x_i) = 1/2 sum_i w_i |x_i - mean|_H^2,

exactly and for every realisation: the *gap* between the mean loss of members and the loss of their mean is their
curvature-weighted variance. Its expectation over m members of common mean, variance v and mutual covariance c is
(v - c)(1 - 1/m), so gap * m / (m - 1) estimates v - c without bias. What all members share (c) opens no gap: it stays
in the loss as a floor, together with the bias, and losses alone cannot tell the two apart.

Estimates are not clipped at zero: an unbiased estimate of a small variance is negative now and then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from trajsoup.errors import TheoryError

Soup = tuple[frozenset[str], int]  # the branches and K; an anchor is a soup of one branch


@dataclass(frozen=True, slots=True, kw_only=True)
class SoupLosses:
    """Mean losses on one split, at one horizon."""

    soups: Mapping[Soup, float]
    ranks: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])  # branch -> rank 1, 2, ...

    def only(self, branches: Collection[str]) -> SoupLosses:
        """What is left without the other branches."""
        kept = frozenset(branches)
        return SoupLosses(
            soups={soup: loss for soup, loss in self.soups.items() if soup[0] <= kept},
            ranks={branch: losses for branch, losses in self.ranks.items() if branch in kept},
        )

    def branches(self, k: int) -> tuple[str, ...]:
        """Branches with an anchor at K."""
        return tuple(
            sorted(branch for names, count in self.soups if count == k and len(names) == 1 for branch in names)
        )

    def counts(self) -> tuple[int, ...]:
        """Every K at which soups were scored."""
        return tuple(sorted({k for _, k in self.soups}))


def member_gap(losses: Sequence[float], *, merged: float, weights: Sequence[float] | None = None) -> float:
    """Mean loss of members minus the loss of their mean: 1/2 sum_i w_i |x_i - mean|_H^2 in the quadratic model."""
    if weights is None:
        return math.fsum(losses) / len(losses) - merged
    return math.fsum(w * loss for w, loss in zip(weights, losses, strict=True)) - merged


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFit:
    """L(N, K) = a(K) + b(K) / N at one K."""

    k: int
    branches: tuple[str, ...]
    limit: float  # a: L* + B_soup(K) + the floor that correlated branches leave; infinitely many branches
    spread: float  # b: V_intra(K) + V_inter, less that floor
    measured: Mapping[int, float]  # N -> mean loss over the subsets of that size that were scored
    subsets: int

    def loss(self, n_branches: int) -> float:
        """The expected loss of a soup of N branches drawn from the same recipes (eq:hierarchical)."""
        return self.limit + self.spread / n_branches

    def worth_of_branch(self, n_branches: int) -> float:
        """What the next branch takes off the loss: b / (N (N + 1))."""
        return self.spread / (n_branches * (n_branches + 1))


def fit_branches(losses: SoupLosses, *, k: int) -> BranchFit:
    """Fit a(K) + b(K) / N over all scored subsets of branches.

    Each subset S of N branches has a gap of expectation b (1 - 1/N); b is the least-squares slope through the origin
    over the mean gaps of N = 2, 3, ..., and a is the mean anchor loss minus b. When every subset was scored this equals
    the plain fit of mean losses against 1/N, which in the quadratic model is exact, not only in expectation; when some
    are missing it does not mistake a good branch for a large N.
    """
    anchors = {branch: losses.soups[frozenset([branch]), k] for branch in losses.branches(k)}
    if len(anchors) < 2:
        raise TheoryError(
            f"{len(anchors)} branch{'es' * (len(anchors) != 1)} with an anchor at K={k}: the spread between branches "
            "needs two. Score the anchors and their soup"
        )
    gaps: dict[int, list[float]] = {}
    measured: dict[int, list[float]] = {1: list(anchors.values())}
    for (names, count), loss in losses.soups.items():
        if count == k and len(names) > 1 and names <= anchors.keys():
            gaps.setdefault(len(names), []).append(member_gap([anchors[name] for name in names], merged=loss))
            measured.setdefault(len(names), []).append(loss)
    if not gaps:
        raise TheoryError(f"no soup of two or more branches was scored at K={k}: score at least one")
    means = {n: _mean(values) for n, values in gaps.items()}
    spread = math.fsum(gap * (1 - 1 / n) for n, gap in means.items()) / math.fsum((1 - 1 / n) ** 2 for n in means)
    return BranchFit(
        k=k,
        branches=tuple(anchors),
        limit=_mean(list(anchors.values())) - spread,
        spread=spread,
        measured={n: _mean(values) for n, values in sorted(measured.items())},
        subsets=sum(len(values) for values in measured.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The two variances of the theory at one K, by analysis of variance (one-way random effects)."""

    k: int
    v_intra: float  # of one checkpoint: what averaging within a branch can reach
    v_inter: float  # persistent: V_inter, and what the selected checkpoints of a branch have in common
    limit: float  # a(K)
    rank_spread: float | None  # part of the within-branch gap that is different rank means; None: no anchors at K=1


def components(losses: SoupLosses, *, k: int) -> Components:
    """Separate V_intra from V_inter with the losses of the ranked checkpoints.

    Within a branch, gap * K / (K - 1) of its K ranks estimates V_intra minus their mean covariance; between branches
    b(K) = V_inter + V_intra(K). So V_inter = b(K) - V_intra / K, unbiased if the ranks have one mean. Different rank
    means (h_nj of eq:conditional-mean-model) swell the first gap and are told by the second: V_intra(1) - V_intra(K)
    is also b(1) - b(K), which they do not touch.
    """
    if k < 2:
        raise TheoryError(f"K={k} leaves nothing within a branch to compare: use K >= 2")
    fit = fit_branches(losses, k=k)
    gaps: list[float] = []
    for branch in fit.branches:
        ranks = losses.ranks.get(branch, ())
        if len(ranks) < k:
            raise TheoryError(
                f"branch {branch!r} has losses of {len(ranks)} ranked checkpoints, and K={k} needs as many: score "
                "them, or lower K"
            )
        gaps.append(member_gap(ranks[:k], merged=losses.soups[frozenset([branch]), k]))
    gap = _mean(gaps)
    v_intra = gap * k / (k - 1)
    first = fit_branches(losses, k=1).spread if len(losses.branches(1)) >= 2 else None
    return Components(
        k=k,
        v_intra=v_intra,
        v_inter=fit.spread - v_intra / k,
        limit=fit.limit,
        rank_spread=None if first is None else gap - (first - fit.spread),
    )


def bias_changes(fits: Mapping[int, BranchFit]) -> dict[int, float]:
    """B_soup(K) - B_soup(K_min) for every K: what lower ranks cost, from a(K) (eq:k-increment)."""
    ordered = dict(sorted(fits.items()))
    start = next(iter(ordered.values())).limit
    return {k: fit.limit - start for k, fit in ordered.items()}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
