"""Rows of W: every model in the paper is a vector of weights over checkpoints (eq:trajectory-soup).

    pools -> select -> coefficients -> Row        theta = sum_c w_c theta_c

Methods (methods/) build and choose rows; the engine that turns rows into weights knows no method.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trajsoup.core.coefficients import EQUAL, coefficients
from trajsoup.core.pool import Pool
from trajsoup.core.selection import SELECTIONS, TOP_K, select
from trajsoup.core.signal import Signal
from trajsoup.core.tensor_groups import part_of
from trajsoup.errors import BlendError, SelectionError

LARGEST_WEIGHT = 1e100  # sums of weights beyond it, and of what they weigh, leave the numbers
SUM_TOLERANCE = 1e-5  # a row written by hand with six digits still counts as summing to one


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of W: weights over checkpoint keys, none of them zero. A group of tensors may have weights of its own.

    Groups are tensors by their names, or parts as `part_of` has them (layer 3, embeddings); the tensor's name goes first.
    """

    name: str
    weights: Mapping[str, float]  # names every ingredient
    groups: Mapping[str, Mapping[str, float]] | None = None  # group of tensors -> its own weights; None: one for all
    mean_of: int | None = None  # None: keys are checkpoints; else sums over so many of them in all, divided once

    def __post_init__(self) -> None:
        for weights in (self.weights, *(self.groups or {}).values()):
            if not weights:
                raise BlendError(f"soup {self.name!r} has no ingredient: name at least one checkpoint")
            for key, weight in weights.items():
                if not math.isfinite(weight) or weight == 0 or abs(weight) > LARGEST_WEIGHT:
                    raise BlendError(
                        f"soup {self.name!r} gives {key} the weight {weight}: use a finite number other than 0, or drop it"
                    )
        for group, weights in (self.groups or {}).items():
            if others := weights.keys() - self.weights.keys():
                raise BlendError(
                    f"soup {self.name!r} weighs {min(others)} in {group!r} only: give it a weight for all too"
                )

        if self.mean_of is not None and (
            self.groups or self.mean_of < 1 or {*self.weights.values()} != {1 / self.mean_of}
        ):
            raise BlendError(
                f"soup {self.name!r} is said to be the mean of {self.mean_of} checkpoints kept as sums: each sum has the "
                "weight 1 over their number, in all tensors"
            )

    def group_of(self, tensor: str, shape: tuple[int, ...]) -> str | None:
        """The group whose weights a tensor has; None: those for all."""
        found = (name for name in (tensor, *part_of(tensor, shape)) if name in (self.groups or {}))
        return next(found, None)

    def of_group(self, group: str | None) -> Row:
        """The row of one group of tensors."""
        return replace(self, weights=self.weights if group is None else (self.groups or {})[group], groups=None)

    @property
    def total(self) -> float:
        """What the weights sum to."""
        return math.fsum(self.weights.values())

    @property
    def uniform(self) -> bool:
        """Whether this is a plain mean, which the engine computes with a single division."""
        if self.mean_of is not None:
            return True
        values = list(self.weights.values())
        return not self.groups and all(value == values[0] for value in values) and abs(self.total - 1) <= SUM_TOLERANCE

    def normalized(self) -> Row:
        """Return the row scaled to sum to one."""
        total = self.total
        if abs(total) < SUM_TOLERANCE:
            raise BlendError(f"soup {self.name!r}: the weights sum to {total:g} and cannot be normalised")
        return replace(self, weights={key: weight / total for key, weight in self.weights.items()})

    def require_sum_one(self) -> None:
        """Refuse a row that scales the model by accident. Sums weigh 1 over the number of checkpoints that are in them."""
        if self.mean_of is not None:
            return
        for group, weights in ((None, self.weights), *(self.groups or {}).items()):
            total, of = math.fsum(weights.values()), "" if group is None else f" of {group!r}"
            if abs(total - 1) > SUM_TOLERANCE:
                raise BlendError(
                    f"soup {self.name!r}: the weights{of} sum to {total:.6g}, not 1: correct them, or pass --normalize to "
                    "divide each by that sum"
                )


def soup_row(
    pools: Sequence[Pool],
    *,
    k: int | None = None,
    rule: str = TOP_K,
    scheme: str = EQUAL,
    horizon: int | None = None,
    rank_by: Signal = Signal.LOSS,
    name: str = "soup",
) -> Row:
    """Build (1/N) sum_n sum_j w_j theta_{n,(j)} of app:merge-coefficients as a row of W.

    A pooled rule (global, all) averages over checkpoints, whatever branch they come from: the paper's
    "branches may be represented unequally".

    >>> soup_row(found.pools(), k=4).weights  # doctest: +SKIP
    """
    if not pools:
        raise SelectionError("no branch to select from: name at least one run")
    if scheme != EQUAL and SELECTIONS.find(rule).pooled:
        raise SelectionError(
            f"coefficients {scheme!r} weigh ranks inside a branch, but selection {rule!r} pools all "
            "branches: use equal coefficients, or --select top-k"
        )
    groups = select(pools, rule=rule, k=k, horizon=horizon, rank_by=rank_by)
    counts = Counter(candidate.key for group in groups for candidate in group)
    if twice := [key for key, count in counts.items() if count > 1]:
        raise SelectionError(f"checkpoint {twice[0]} was selected {counts[twice[0]]} times: name each run only once")
    weights = {
        candidate.key: weight / len(groups)
        for group in groups
        for candidate, weight in zip(group, coefficients(scheme, group), strict=True)
    }
    return Row(name=name, weights=weights)
