"""Windows: the newest checkpoints of a branch, by number or by tokens (`--window 10`, `--window 500B`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trajsoup.core.pool import Candidate, Pool, Unit
from trajsoup.core.quantity import format_tokens, parse_tokens
from trajsoup.errors import SelectionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How much of the end of each branch; one of the two."""

    checkpoints: int | None = None
    tokens: int | None = None

    def __str__(self) -> str:
        return f"{self.checkpoints} checkpoints" if self.tokens is None else f"{format_tokens(self.tokens)} tokens"


def parse_window(text: object, *, where: object) -> Window:
    """Read a window: a plain number counts checkpoints, one with k, M, B or T counts tokens."""
    number = parse_tokens(text, where=where)
    return Window(checkpoints=number) if re.fullmatch(r"\s*\d+\s*", str(text)) else Window(tokens=number)


def newest(pool: Pool, window: Window | None) -> tuple[Candidate, ...]:
    """The checkpoints of the window in order of tokens, at least one; None: all. A window beyond the pool is refused.

    A window of W tokens at the end t holds what was saved in (t - W, t]: 500B at a spacing of 25B are 20 checkpoints.
    """
    order = tuple(sorted(pool.candidates, key=lambda c: c.tokens))
    if not order:
        raise SelectionError(f"branch {pool.branch!r} has no usable checkpoint: extend the horizon or drop the branch")
    if window is None:
        return order
    last = order[-1].tokens
    if window.tokens is not None:
        if pool.unit is not Unit.TOKENS:
            raise SelectionError(
                f"a window of {window} needs the tokens of every checkpoint, and branch {pool.branch!r} knows only steps: "
                "pass --tokens-per-step, or count checkpoints (--window 10)"
            )
        if window.tokens > last:
            raise SelectionError(
                f"a window of {window} is longer than branch {pool.branch!r}, which has {format_tokens(last)}: shorten it"
            )
        return tuple(c for c in order if c.tokens > last - window.tokens)
    assert window.checkpoints is not None
    if window.checkpoints > len(order):
        raise SelectionError(
            f"a window of {window} is longer than branch {pool.branch!r}, which has {len(order)} usable ones: shorten it, "
            "extend the horizon, or save checkpoints more often"
        )
    return order[-window.checkpoints :]
