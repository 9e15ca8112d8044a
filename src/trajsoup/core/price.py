"""The price of a trajectory against a token: how many branches, how long, which K, for a budget (app:fixed-budget).

    losses of soups at several horizons -> a(t, K) + b(t, K) / N -> least loss at C(N, t) <= budget

a(t, K) = A_K + alpha_K (t/t0)^-p is what no number of branches averages away, b(t, K) = b0_K (t/t0)^q what one more branch
takes its share of (V_intra / K_eff + V_inter); p and q are common to all K. The cost is the whole one of sec:discussion:

    C(N, t) = N [phi t + (t/Delta) (V phi/3 + bytes price) + c0] + S V phi/3 + (N_searched - N) phi t
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.estimators import SoupLosses, fit_branches
from trajsoup.errors import TheoryError

Array = NDArray[np.float64]
P_TRIED: list[float] = np.geomspace(0.05, 4.0, 300).tolist()
Q_TRIED: list[float] = np.linspace(-2.0, 2.0, 81).tolist()
ASSUMED_P = 0.5  # where two horizons leave it open
REACH = 2.0  # times the longest horizon that was measured: beyond, nothing is recommended


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """a and b at one K."""

    k: int
    limit: float  # A_K
    alpha: float
    spread: float  # b0_K


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """L(N, t, K) = a(t, K) + b(t, K) / N."""

    laws: Mapping[int, Law]  # by K
    p: float
    q: float
    t0: float  # the longest horizon that was fitted
    shortest: float

    def a(self, t: float, k: int) -> float:
        """What is left with any number of branches."""
        law = self.laws[k]
        return law.limit + law.alpha * (t / self.t0) ** -self.p

    def b(self, t: float, k: int) -> float:
        """What branches share."""
        return self.laws[k].spread * (t / self.t0) ** self.q

    def loss(self, n_branches: int, t: float, k: int) -> float:
        """Predicted for N branches of t tokens."""
        return self.a(t, k) + self.b(t, k) / n_branches

    def slope(self, n_branches: int, t: float, k: int) -> float:
        """dL/dt: a' + b'/N, for each token more in every branch."""
        falls = -self.p * self.laws[k].alpha * (t / self.t0) ** -self.p
        return (falls + self.q * self.b(t, k) / n_branches) / t

    def best_n(self, t: float, k: int) -> float:
        """N* = (b + t b') / (-t a') at fixed tokens N t; infinite where more tokens take nothing off a."""
        falls = self.p * self.laws[k].alpha * (t / self.t0) ** -self.p  # -t a'
        return math.inf if falls <= 0 else max((1 + self.q) * self.b(t, k) / falls, 0.0)

    def worth_of_branch(self, n_branches: int, t: float, k: int) -> float:
        """pi: as many tokens more in every branch would take as much off as one more branch; infinite: no tokens would."""
        slope = -self.slope(n_branches, t, k)
        return math.inf if slope <= 0 else self.b(t, k) / (n_branches * (n_branches + 1)) / slope


def fit_surface(by_horizon: Mapping[int, SoupLosses], *, largest: int | None = None) -> Surface:
    """Fit a and b over horizons; `largest` leaves out soups of more branches, `by_horizon` horizons not given."""
    found: dict[int, dict[int, tuple[float, float]]] = {}
    for horizon, losses in by_horizon.items():
        seen = losses if largest is None else _up_to(losses, largest)
        for k in seen.counts():
            try:
                fit = fit_branches(seen, k=k)
            except TheoryError:  # fewer than two branches at this K
                continue
            found.setdefault(k, {})[horizon] = fit.limit, fit.spread
    found = {k: at for k, at in found.items() if len(at) > 1}
    if not found:
        raise TheoryError(
            "no K has soups of two branches at two horizons: how much tokens and branches are worth shows only there. "
            "Score two branches at two horizons (evaluate: {horizons: 4})"
        )
    t0 = float(max(by_horizon))
    x = {k: np.array(sorted(at), np.float64) / t0 for k, at in found.items()}
    limits = {k: np.array([at[h][0] for h in sorted(at)]) for k, at in found.items()}
    spreads = {k: np.array([at[h][1] for h in sorted(at)]) for k, at in found.items()}

    def of_a(p: float) -> tuple[float, dict[int, Array]]:
        error = 0.0
        lines: dict[int, Array] = {}
        for k, values in limits.items():
            design = np.stack([np.ones_like(x[k]), x[k] ** -p], axis=1)
            lines[k] = np.asarray(np.linalg.lstsq(design, values, rcond=None)[0], np.float64)
            error += float(np.sum((design @ lines[k] - values) ** 2))
        return error, lines

    def of_b(q: float) -> tuple[float, dict[int, float]]:
        error = 0.0
        heights: dict[int, float] = {}
        for k, values in spreads.items():
            shape = x[k] ** q
            heights[k] = max(float(shape @ values / (shape @ shape)), 0.0)
            error += float(np.sum((heights[k] * shape - values) ** 2))
        return error, heights

    decided = max(len(at) for at in found.values()) > 2
    p = min(P_TRIED, key=lambda p: of_a(p)[0]) if decided else ASSUMED_P
    q = min(Q_TRIED, key=lambda q: (of_b(q)[0], abs(q)))
    lines, heights = of_a(p)[1], of_b(q)[1]
    laws = {k: Law(k=k, limit=float(lines[k][0]), alpha=float(lines[k][1]), spread=heights[k]) for k in sorted(found)}
    return Surface(laws=laws, p=p, q=q, t0=t0, shortest=float(min(by_horizon)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What things cost, in FLOPs and dollars."""

    flops_per_token: float  # phi
    checkpoint_every: int  # Delta, tokens
    validation_tokens: int  # V, of one pass
    checkpoint_bytes: int = 0
    searched_rows: int = 0  # S: rows that are scored to choose
    searched_branches: int = 0  # N_searched: trained to choose from; fewer than N: N
    branch_tokens: float = 0.0  # c0: what starting a branch costs
    dollars_per_flop: float = 0.0
    dollars_per_byte: float = 0.0

    def flops(self, n_branches: int, t: float) -> float:
        """Of training, of ranking every checkpoint, of choosing, and of branches that were trained and not taken."""
        phi, passes = self.flops_per_token, self.validation_tokens * self.flops_per_token / 3
        each = phi * t + t / self.checkpoint_every * passes + self.branch_tokens * phi
        rest = max(self.searched_branches - n_branches, 0) * phi * t
        return n_branches * each + self.searched_rows * passes + rest

    def stored_bytes(self, n_branches: int, t: float) -> float:
        """Of all checkpoints."""
        return n_branches * t / self.checkpoint_every * self.checkpoint_bytes

    def dollars(self, n_branches: int, t: float) -> float:
        """The whole cost."""
        stored = self.stored_bytes(n_branches, t) * self.dollars_per_byte
        return self.flops(n_branches, t) * self.dollars_per_flop + stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """N branches of t tokens that cost the budget, and what is promised of them."""

    n_branches: int
    horizon: float  # t
    k: int
    loss: float
    beyond: bool  # t lies outside the horizons that were fitted


def allocations(
    surfaces: Sequence[Surface], *, prices: Prices, budget: float, in_dollars: bool, most: int
) -> tuple[Allocation, ...]:
    """The best t and K for each N; several surfaces (seeds) count by the mean of what they promise."""
    cost = prices.dollars if in_dollars else prices.flops
    found: list[Allocation] = []
    for n in range(1, most + 1):
        fixed = cost(n, 0.0)
        t = (budget - fixed) / (cost(n, 1.0) - fixed)  # the cost is linear in t
        ks = [k for k in surfaces[0].laws if k <= t / prices.checkpoint_every and all(k in s.laws for s in surfaces)]
        if t <= 0 or not ks:
            continue
        losses = {k: math.fsum(s.loss(n, t, k) for s in surfaces) / len(surfaces) for k in ks}
        k = min(losses, key=lambda k: (losses[k], k))
        first = surfaces[0]
        outside = not first.shortest * 0.999 <= t <= first.t0 * 1.001
        found.append(Allocation(n_branches=n, horizon=t, k=k, loss=losses[k], beyond=outside))
    if not found:
        raise TheoryError(
            f"a budget of {budget:.3g} {'USD' if in_dollars else 'FLOPs'} does not reach one branch with a checkpoint: "
            "raise it, or save more often"
        )
    return tuple(found)


def recommended(found: Sequence[Allocation], *, longest: float) -> Allocation | None:
    """The least promised loss, fewer branches first; None where every horizon is beyond reach of what was measured."""
    within = [a for a in found if a.horizon <= REACH * longest]
    return min(within, key=lambda a: (a.loss, a.n_branches), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationCheck:
    """Fitted on soups of one and two branches at horizons below T: what it promised of N branches of T/N, and what was."""

    predicted: Mapping[str, float]  # N -> promised, at the promised best K
    measured: Mapping[str, float]  # N -> mean over the subsets that were scored, at the same K
    chosen: int  # N of least promise
    best: int  # N of least measured loss
    regret: float  # measured loss of the chosen N above that of the best
    regret_of_one: float  # of always taking one branch
    regret_of_most: float  # of always taking as many as there are


def check_allocation(
    by_horizon: Mapping[int, SoupLosses], *, total_tokens: int, limited: Mapping[int, Mapping[int, float]]
) -> AllocationCheck | None:
    """Hold the law to what was measured at T = N t; `limited` is N -> K -> mean loss there. None: too little was scored."""
    try:
        surface = fit_surface({h: s for h, s in by_horizon.items() if h < total_tokens}, largest=2)
    except (TheoryError, ValueError):
        return None
    predicted: dict[int, float] = {}
    measured: dict[int, float] = {}
    for n, by_k in sorted(limited.items()):
        ks = [k for k in by_k if k in surface.laws]
        if ks:
            k = min(ks, key=lambda k: (surface.loss(n, total_tokens / n, k), k))
            predicted[n], measured[n] = surface.loss(n, total_tokens / n, k), by_k[k]
    if len(predicted) < 2:
        return None
    chosen = min(predicted, key=lambda n: (predicted[n], n))
    best = min(measured, key=lambda n: (measured[n], n))
    least = measured[best]
    return AllocationCheck(
        predicted={str(n): loss for n, loss in predicted.items()},
        measured={str(n): loss for n, loss in measured.items()},
        chosen=chosen,
        best=best,
        regret=measured[chosen] - least,
        regret_of_one=measured[min(measured)] - least,
        regret_of_most=measured[max(measured)] - least,
    )


def _up_to(losses: SoupLosses, largest: int) -> SoupLosses:
    return SoupLosses(
        soups={soup: loss for soup, loss in losses.soups.items() if len(soup[0]) <= largest}, ranks=losses.ranks
    )
