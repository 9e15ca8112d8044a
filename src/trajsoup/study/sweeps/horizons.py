"""Every method at every token budget (fig:traj-soup-performance-curves)."""

from __future__ import annotations

from collections.abc import Sequence

from trajsoup.study.choosing.entries import Chosen, Entry
from trajsoup.study.choosing.field import Field
from trajsoup.study.choosing.main_table import method_entries, shown
from trajsoup.study.sweeps.points import SINGLE, SOUP
from trajsoup.study.sweeps.table import Pairs, Sweep, sweep


def _pairs(chosen: Sequence[Chosen]) -> Pairs:
    """The soups against the best single merge of the same budget."""
    singles = {c.entry.x: c for c in chosen if c.entry.strategy == SINGLE.strategy and not c.entry.alone}
    soups = (c for c in chosen if c.entry.strategy == SOUP.strategy)
    return [(c, singles[c.entry.x]) for c in soups if c.entry.x in singles]


@sweep(
    name="horizons",
    title="All strategies at every horizon",
    paper="fig:traj-soup-performance-curves",
    axis="token budget",
    pairs=_pairs,
    own_section=True,
)
def horizons(field: Field, asked: Sweep) -> Sequence[Entry]:
    """Branches and K are free, t is the axis."""
    return [
        entry
        for budget in field.horizons
        for method in shown(field)
        for entry in method_entries(field, method, budget=budget, sweep=asked.name)
    ]
