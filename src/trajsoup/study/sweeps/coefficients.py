"""Merging coefficients (tab:tiny-coefficient-selection-ablation)."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.core.coefficients import WEIGHTINGS
from trajsoup.study.choosing.entries import Axis, Entry, entry_of
from trajsoup.study.choosing.field import Field
from trajsoup.study.sweeps.points import SOUP, against_the_first, clipped, fixed_k
from trajsoup.study.sweeps.table import Sweep, sweep


@sweep(
    name="coefficients",
    title="Merging coefficients",
    paper="tab:tiny-coefficient-selection-ablation",
    axis="coefficients",
    pairs=against_the_first,
)
def coefficients(field: Field, asked: Sweep) -> Sequence[Entry]:
    """Every weighting of the table on all admitted branches with K = 4: nothing is chosen."""
    within, k = fixed_k(field, field.all_together)
    return [
        entry_of(
            SOUP,
            within.freedom(SOUP, [field.all_together], weights=name),
            key=name,
            label=f"coefficients {name}",
            sweep=asked.name,
            at=Axis(series=f"coefficients{clipped(k)}", x=name),
        )
        for name, weighting in WEIGHTINGS.items()
        if weighting.swept
    ]
