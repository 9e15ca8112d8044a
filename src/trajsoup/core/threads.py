"""How many threads a branch is worth.

A step of a tiny model is thousands of kernels of some 50 microseconds each, and waking a second thread for every one of
them costs as much again: with two threads the embedded model trains slower than with one. So a branch gets a thread for
every so much work of one pass, and never more than its share of the cores. Below two units of work the number depends on
the study alone, and with it every bit that the branch computes.
"""

from __future__ import annotations

import math

PASS_FLOPS_PER_THREAD = 1e10  # forward and backward; the embedded default has 3e9 in a pass of 2,048 tokens


def threads_for(*, pass_flops: float, share: int) -> int:
    """Return the threads of a branch whose forward and backward pass costs `pass_flops`, out of a share of the cores."""
    return max(min(share, int(pass_flops // PASS_FLOPS_PER_THREAD)), 1)


def evenly(count: int, *, cores: int) -> int:
    """How many branches or seeds at once: up to half as many again as cores, where else the last would leave cores idle."""
    return min(math.ceil(count / (count // cores)), cores + max(cores // 2, 1)) if count > cores else count
