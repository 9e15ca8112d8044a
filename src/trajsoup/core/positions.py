"""Where branches save: the same token positions for all, whatever their batch size.

    horizon, interval, tokens per step of every branch -> Positions

A branch can only save between two optimizer steps. Positions that all branches share are therefore multiples of the
least common multiple of their step sizes. The paper's 25B tokens is no multiple of a batch of 256 sequences of 262,144
tokens (372.53 steps); the nearest shared position is 25.03B. We move the interval there, never by more than 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trajsoup.core.quantity import format_tokens
from trajsoup.errors import RecipeError

MOST_SHIFT = 0.01  # of the interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Token positions since the fork point at which every branch saves."""

    checkpoint_every: int
    count: int

    @property
    def horizon(self) -> int:
        """The last position."""
        return self.checkpoint_every * self.count

    def all(self) -> tuple[int, ...]:
        """Every position in order."""
        return tuple(self.checkpoint_every * (i + 1) for i in range(self.count))


def shared_positions(*, horizon: int, checkpoint_every: int, step_tokens: Mapping[str, int]) -> Positions:
    """Return the positions nearest to the wanted ones that every branch (name -> tokens per step) reaches exactly."""
    if horizon % checkpoint_every:
        below = horizon // checkpoint_every * checkpoint_every
        near = " or ".join(f"{tokens:,}" for tokens in (below, below + checkpoint_every) if tokens)
        raise RecipeError(
            f"the horizon of {horizon:,} tokens is not a multiple of checkpoint_every ({checkpoint_every:,}): "
            f"use a horizon of {near}"
        )
    unit = math.lcm(*step_tokens.values())
    moved = max(round(checkpoint_every / unit), 1) * unit
    if abs(moved - checkpoint_every) > MOST_SHIFT * checkpoint_every:
        steps = ", ".join(f"{branch} {tokens:,}" for branch, tokens in step_tokens.items())
        raise RecipeError(
            f"the batches do not divide checkpoint_every ({checkpoint_every:,} tokens): one step takes {steps} tokens, so "
            f"all branches meet only every {unit:,}: use {format_tokens(moved)} ({moved:,}), or batches that divide "
            "one another"
        )
    return Positions(checkpoint_every=moved, count=horizon // checkpoint_every)
