"""How many checkpoints and how many branches: the trade-offs of app:selection-bias and app:fixed-budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from trajsoup.core.theory import ExcessLoss, hierarchical_loss
from trajsoup.errors import TheoryError


def k_increment(*, bias: tuple[float, float], k_eff: tuple[float, float], v_intra: float, n_branches: int) -> float:
    """Change of expected loss from K to K + 1 (eq:k-increment); negative: one more checkpoint helps.

    `bias` and `k_eff` are (at K, at K + 1).
    """
    return bias[1] - bias[0] + v_intra / n_branches * (1 / k_eff[1] - 1 / k_eff[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSurrogate:
    """Phi_N(K) = B(1) + gamma (K - 1)^2 + V_intra / (N K) + V_inter / N (eq:checkpoint-surrogate)."""

    bias: float  # B_soup(1)
    gamma: float  # growth of the bias with lower ranks
    v_intra: float
    v_inter: float
    n_branches: int

    def __post_init__(self) -> None:
        if self.gamma < 0 or self.v_intra < 0 or self.n_branches < 1:
            raise TheoryError(
                f"the surrogate needs gamma >= 0, V_intra >= 0 and N >= 1, got {self.gamma:g}, {self.v_intra:g} and "
                f"{self.n_branches}"
            )

    def loss(self, k: float) -> float:
        """Phi_N(K)."""
        spread = self.v_intra / k + self.v_inter
        return self.bias + self.gamma * (k - 1) ** 2 + spread / self.n_branches

    def best_k(self) -> float:
        """The unique K* >= 1 with 2 gamma K*^2 (K* - 1) = V_intra / N; infinite without a bias that grows.

        It falls as N grows.
        """
        target = self.v_intra / self.n_branches
        if target == 0:
            return 1.0
        if self.gamma == 0:
            return math.inf
        roots = np.roots([1.0, -1.0, 0.0, -target / (2 * self.gamma)])  # one sign change: one positive root
        return max(float(root.real) for root in roots if abs(root.imag) <= 1e-9 * max(abs(root), 1))

    def best_count(self, feasible: Iterable[int]) -> int:
        """The best integer K among those that exist: on an interval a neighbour of K*, on a sparse grid any."""
        counts = sorted(set(feasible))
        if not counts or counts[0] < 1:
            raise TheoryError(f"feasible counts {counts} must be positive: say which K the pools allow")
        return min(counts, key=lambda k: (self.loss(k), k))


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonTerms:
    """The terms of eq:hierarchical as functions of the branch horizon t (tokens) and of K."""

    bias: Callable[[float, int], float]
    v_intra: Callable[[float], float]
    v_inter: Callable[[float], float]
    k_eff: Callable[[float, int], float]


def fixed_budget_loss(total_tokens: float, *, n_branches: int, k: int, terms: HorizonTerms) -> ExcessLoss:
    """E(T, N, K): the hierarchical loss at t = T / N (eq:fixed-budget). An identity, not an allocation rule."""
    t = total_tokens / n_branches
    return hierarchical_loss(
        bias=terms.bias(t, k),
        v_intra=terms.v_intra(t),
        v_inter=terms.v_inter(t),
        n_branches=n_branches,
        k_eff=terms.k_eff(t, k),
    )


def best_allocation(
    total_tokens: float, *, feasible: Iterable[tuple[int, int]], terms: HorizonTerms
) -> tuple[int, int, ExcessLoss]:
    """The (N, K) of least loss at a fixed budget, among those that exist; ties go to fewer branches."""
    found = [(n, k, fixed_budget_loss(total_tokens, n_branches=n, k=k, terms=terms)) for n, k in feasible]
    if not found:
        raise TheoryError("no feasible (N, K): say how many branches and checkpoints the budget allows")
    return min(found, key=lambda choice: (choice[2].total, choice[0], choice[1]))
