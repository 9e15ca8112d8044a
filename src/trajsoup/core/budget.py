"""What a study costs: tokens, FLOPs, bytes on disk, validation passes (sec:setup, eq:flops-proxy, sec:discussion).

The paper's axis C counts training tokens alone and says what it leaves out: storage and the validation passes used for
ranking. Both are here, so that a plan shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Setting(StrEnum):
    """The two budget conventions of sec:setup."""

    LIMITED = "limited"  # N branches share T tokens; compared with one run of T
    EXTENDED = "extended"  # every branch runs its full horizon; N grows the total


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Tokens that a study may spend on its branches."""

    setting: Setting
    n_branches: int  # N
    horizon: int  # t, tokens per branch since the fork point
    apart: tuple[int, ...] = ()  # shorter horizons, for each of which every branch is trained once more

    @property
    def total_tokens(self) -> int:
        """T = N t, and what is trained apart."""
        return self.n_branches * (self.horizon + sum(self.apart))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCost:
    """What a budget consumes."""

    train_tokens: int  # D of eq:flops-proxy
    train_flops: float  # C
    checkpoints: int
    checkpoint_bytes: int  # all checkpoints together
    state_bytes: int  # two full states per run: a new one is written before the old one is removed
    validation_passes: int
    validation_flops: float | None  # None where the size of the validation set is unknown

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk at the worst moment."""
        return self.checkpoint_bytes + self.state_bytes


def cost_of(
    budget: Budget,
    *,
    checkpoints_per_branch: int,  # of all its runs
    flops_per_token: float,
    model_bytes: int,
    state_bytes: int,
    validation_tokens: int | None = None,
) -> BudgetCost:
    """Price a budget. C = flops_per_token * sum of the horizons, eq:flops-proxy.

    A validation pass is a forward pass, a third of what training costs, over the validation set, once for each
    checkpoint that may be selected.
    """
    checkpoints = budget.n_branches * checkpoints_per_branch
    return BudgetCost(
        train_tokens=budget.total_tokens,
        train_flops=flops_per_token * budget.total_tokens,
        checkpoints=checkpoints,
        checkpoint_bytes=checkpoints * model_bytes,
        state_bytes=2 * budget.n_branches * (1 + len(budget.apart)) * state_bytes,
        validation_passes=checkpoints,
        validation_flops=None if validation_tokens is None else checkpoints * validation_tokens * flops_per_token / 3,
    )
