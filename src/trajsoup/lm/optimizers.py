"""Muon for hidden matrices, AdamW for embeddings, norms, router, head and everything else (app:training-config).

    parameters by role -> Muon (2-D, and fused 3-D experts) + torch.optim.AdamW

Muon's update is scaled by 0.2 sqrt(max(rows, columns)) ("match_rms_adamw"), so that one peak learning rate and one weight
decay fit both optimizers, as the paper's single learning rate implies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn

from trajsoup.core.recipe import Optimizer, Recipe

NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # those of torch.optim.Muon
NS_STEPS = 5
NS_EPS = 1e-7
NOT_HIDDEN = ("embed", "lm_head", "router", ".gate.weight", "norm")  # 2-D parameters that Muon must not touch
FUSED_PAIR = "gate_up_proj"  # an expert's two matrices in one tensor


class Role(StrEnum):
    """Which optimizer a parameter belongs to."""

    MATRIX = "matrix"  # Muon
    EXPERTS = "experts"  # Muon, a matrix for each expert
    OTHER = "other"  # AdamW


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Parameters by role, with their names, in the model's order."""

    matrices: dict[str, nn.Parameter]
    experts: dict[str, nn.Parameter]
    others: dict[str, nn.Parameter]


def role_of(name: str, parameter: Tensor) -> Role:
    """Decide by name and shape."""
    if any(part in name for part in NOT_HIDDEN) or parameter.ndim < 2:
        return Role.OTHER
    if parameter.ndim == 2:
        return Role.MATRIX
    return Role.EXPERTS if parameter.ndim == 3 and "expert" in name else Role.OTHER


def grouped(model: nn.Module) -> Grouped:
    """Sort the trainable parameters of a model by role."""
    roles: dict[Role, dict[str, nn.Parameter]] = {role: {} for role in Role}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            roles[role_of(name, parameter)][name] = parameter
    return Grouped(matrices=roles[Role.MATRIX], experts=roles[Role.EXPERTS], others=roles[Role.OTHER])


def make_optimizers(model: nn.Module, *, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Build the optimizers of a recipe. The learning rate of every group is set before each step by the trainer."""
    groups = grouped(model)
    adamw: dict[str, Any] = {"lr": recipe.peak_lr, "betas": recipe.betas, "fused": True}
    if recipe.optimizer is Optimizer.ADAMW:
        hidden = [*groups.matrices.values(), *groups.experts.values()]
        return [torch.optim.AdamW(_with_decay(hidden, groups.others, recipe.weight_decay), **adamw)]
    pairs = [p for name, p in groups.experts.items() if name.endswith(FUSED_PAIR)]
    singles = [p for name, p in groups.experts.items() if not name.endswith(FUSED_PAIR)]
    split = [{"params": [*groups.matrices.values(), *singles], "matrices": 1}, {"params": pairs, "matrices": 2}]
    optimizers: list[torch.optim.Optimizer] = []
    if hidden := [group for group in split if group["params"]]:
        optimizers.append(Muon(hidden, lr=recipe.peak_lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay))
    if groups.others:
        optimizers.append(torch.optim.AdamW(_with_decay([], groups.others, recipe.weight_decay), **adamw))
    return optimizers


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon, also for experts fused into one (experts, rows, columns) tensor, and at a CPU's best precision.

    Every expert's matrix is orthogonalised by itself, all in one batched Newton-Schulz iteration. `matrices` says how many
    matrices are stacked along the rows (gate and up: 2). The result equals torch.optim.Muon on the unfused matrices, but
    for its rounding to bf16 where that is slower than fp32.
    """

    def __init__(self, params: Any, *, lr: float, momentum: float, weight_decay: float, matrices: int = 1) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "matrices": matrices})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Perform one update."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        momentum, lr = group["momentum"], group["lr"]
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"]
        buffer.lerp_(gradient, 1 - momentum)
        *experts, rows, columns = parameter.shape
        rows //= group["matrices"]
        ahead = gradient.lerp(buffer, momentum)
        if experts:
            ahead = ahead.reshape(experts[0] * group["matrices"], rows, columns)
        update = orthogonalized(ahead).reshape(parameter.shape)
        parameter.mul_(1 - lr * group["weight_decay"])
        parameter.add_(update, alpha=-lr * 0.2 * math.sqrt(max(rows, columns)))


def orthogonalized(batch: Tensor) -> Tensor:
    """Newton-Schulz iteration of torch.optim.Muon, for one matrix or a batch; bf16 as there, but fp32 on a CPU.

    A CPU multiplies small bf16 matrices ten times slower than fp32 ones.
    """
    a, b, c = NS_COEFFICIENTS
    tall = batch.shape[-2] > batch.shape[-1]
    x = batch.float() if batch.device.type == "cpu" else batch.bfloat16()
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=NS_EPS)
    for _ in range(NS_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if tall else x


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], lr: float) -> None:
    """Give every parameter group this rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr


def _with_decay(hidden: list[nn.Parameter], others: dict[str, nn.Parameter], decay: float) -> list[dict[str, Any]]:
    """Vectors (norms, biases) are not decayed; every matrix is."""
    matrices = [*hidden, *(p for p in others.values() if p.ndim >= 2)]
    vectors = [p for p in others.values() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
