"""What several sweeps share: a point that is one row, the two branches that a study names, and what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trajsoup.core.methods.asking import Option, best_of
from trajsoup.core.methods.freedom import Stop
from trajsoup.core.methods.table import METHODS, Method
from trajsoup.core.pool import Pool
from trajsoup.core.selection import usable
from trajsoup.core.signal import Signal
from trajsoup.errors import SelectionError
from trajsoup.study.choosing.entries import Axis, Chosen, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.table import Pairs, Sweep

K = 4  # checkpoints of each branch in the paper's tables
SINGLE, SOUP = METHODS["single-merge"], METHODS["trajectory-soup"]


def point(asked: Sweep, key: str, option: Option, at: Axis, *, method: Method = SOUP) -> Entry:
    """An entry with nothing to choose."""
    return Entry(
        key=key,
        label=f"{at.series} {at.x}",
        strategy=method.strategy,
        ask=lambda: best_of((option,), rank_by=Signal.LOSS),
        sweep=asked.name,
        at=at,
    )


def fixed_k(field: Field, stop: Stop, *, k: int = K) -> tuple[Field, int]:
    """The field with one K, clipped to what all these branches have there, and that K."""
    have = min(len(usable(pool).until(stop.horizon).candidates) for pool in field.chosen(stop.branches))
    found = max(min(k, have), 1)
    return replace(field, ks=(found,)), found


def clipped(k: int, wanted: int = K) -> str:
    """How a prescribed K is written: with what was wanted, where the branches have fewer."""
    return f", K = {k}" + ("" if k == wanted else f" (all there are of {wanted})")


def two_branches(field: Field, asked: Sweep, default: Sequence[str]) -> tuple[Pool, Pool] | None:
    """The two branches that the study names, or the default ones; None where fewer than two were admitted."""
    names = asked.branches or tuple(dict.fromkeys(default))
    if missing := [name for name in names if name not in {pool.branch for pool in field.pools}]:
        raise SelectionError(f"sweep {asked.name!r} names the branch {missing[0]!r}, which the study does not have")
    if len(names) < 2:
        return None
    first, second = (field.chosen([name])[0] for name in names)
    return first, second


def against_the_first(chosen: Sequence[Chosen]) -> Pairs:
    """Every entry against the first, the paper's default."""
    return [(c, chosen[0]) for c in chosen[1:]]


def middle_against_ends(chosen: Sequence[Chosen]) -> Pairs:
    """The entry in the middle against the first and the last."""
    if not chosen:
        return []
    middle = chosen[len(chosen) // 2]
    return [(middle, end) for end in (chosen[0], chosen[-1]) if end is not middle]
