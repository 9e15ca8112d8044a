"""Checkpoint selection (tab:tiny-coefficient-selection-ablation)."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.selection import SELECTIONS
from trajsoup.study.choosing.entries import Axis, Entry, entry_of
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP, against_the_first, clipped, fixed_k
from trajsoup.study.sweeps.table import Sweep, sweep


@sweep(
    name="selections",
    title="Checkpoint selection",
    paper="tab:tiny-coefficient-selection-ablation",
    axis="selection",
    pairs=against_the_first,
)
def selections(field: Field, asked: Sweep) -> Sequence[Entry]:
    """Every selection of the table on all admitted branches with K = 4: nothing is chosen."""
    within, k = fixed_k(field, field.all_together)
    return [
        entry_of(
            SOUP,
            within.freedom(SOUP, [field.all_together], select=name),
            key=name,
            label=f"selection {name}",
            sweep=asked.name,
            at=Axis(series=f"selection{clipped(k)}", x=name),
        )
        for name, selection in SELECTIONS.items()
        if selection.swept
    ]
