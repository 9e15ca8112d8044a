"""DiLoCo's outer optimizer on paper: every outer iterate is a row over the fork point and the workers' endpoints.

    theta_{r+1} = theta_r - lr (g_r + momentum b_r),   b_r = momentum b_{r-1} + g_r,   g_r = theta_r - mean_n theta_{r,n}

This is SGD with Nesterov momentum as torch.optim has it, applied to the outer gradient g_r (Douillard 2023). It is linear in
what the workers return, so an iterate needs no state: it is blended anew from all endpoints, summed in fp64, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trajsoup.core.soup import Row


def outer_iterate(
    fork_point: str, rounds: Sequence[Sequence[str]], *, lr: float, momentum: float, name: str = "outer iterate"
) -> Row:
    """The iterate after these rounds, each the keys of its workers' endpoints.

    After one round with DiLoCo's 0.7 and 0.9 it is -0.33 theta_0 + 1.33 mean: beyond the mean.
    """
    theta = np.zeros(1 + len(rounds))  # over the fork point and the mean of each round
    buffer = np.zeros_like(theta)
    theta[0] = 1.0
    for r in range(1, len(theta)):
        gradient = theta.copy()
        gradient[r] -= 1.0
        buffer = momentum * buffer + gradient
        theta = theta - lr * (gradient + momentum * buffer)
    weights = {fork_point: float(theta[0])}
    for share, keys in zip(theta[1:], rounds, strict=True):
        weights |= {key: float(share) / len(keys) for key in keys}
    return Row(name=name, weights={key: weight for key, weight in weights.items() if weight})
