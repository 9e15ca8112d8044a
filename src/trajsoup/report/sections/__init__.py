"""The sections of the page, in order: one file for each, and one table of them.

A section is a function `section(records) -> Section | None`: it reads the records it needs by type, draws them, says what
is to be seen, and tabulates. A further one is its file and its line here, or `register` from outside the package.
"""

from __future__ import annotations

from trajsoup.report.section import Entry, Shown
from trajsoup.report.sections import (
    ablations,
    allocation,
    branches,
    compute,
    conditions,
    connectivity,
    crossing,
    curves,
    geometry,
    neighbours,
    provenance,
    results,
    scaling,
    trained_neighbours,
)
from trajsoup.study.records.files import Records

SECTIONS = [
    Entry(
        name="crossing",
        title="One long run or several short ones",
        make=crossing.section,
        missing="Limited and serial training have not been compared over the budget: `trajsoup sweep` does it.",
    ),
    Entry(
        name="conditions",
        title="Conditions",
        make=conditions.section,
        missing="The conditions have not been measured yet.",
    ),
    Entry(name="results", title="Results", make=results.section, missing="No soup has been scored on test yet."),
    Entry(name="curves", title="Over tokens", make=curves.section, missing="No checkpoint has been scored yet."),
    Entry(
        name="compute",
        title="Compute",
        make=compute.section,
        missing="The frontier has not been swept: `trajsoup sweep` makes it.",
    ),
    Entry(
        name="scaling",
        title="Branches and checkpoints",
        make=scaling.section,
        missing="The (N, K) sweep has not run: `trajsoup sweep` makes it.",
    ),
    Entry(
        name="neighbours",
        title="Against the neighbours",
        make=neighbours.section,
        missing="The methods of others have not been compared: `sweeps: [methods]` does it.",
    ),
    Entry(
        name="trained-neighbours",
        title="Against methods that train",
        make=trained_neighbours.section,
        missing="No method of others was trained: `neighbours` in the study file does it.",
    ),
    Entry(
        name="ablations",
        title="Ablations",
        make=ablations.section,
        missing="No ablation has been swept: `trajsoup sweep` makes them.",
    ),
    Entry(name="geometry", title="Geometry", make=geometry.section, missing="No geometry has been computed."),
    Entry(
        name="connectivity",
        title="Between models",
        make=connectivity.section,
        missing="No path between models has been measured: `connectivity:` and `sweeps: [region]` ask for it.",
    ),
    Entry(
        name="allocation",
        title="Tokens and branches",
        make=allocation.section,
        missing="Every branch ran to the horizon: `allocation: adaptive` opens and stops them as they train.",
    ),
    Entry(name="branches", title="Branches", make=branches.section, missing="No branch is known yet."),
    Entry(name="provenance", title="Provenance", make=provenance.section, missing="Nothing has been planned yet."),
]


def register(entry: Entry, *, before: str | None = None) -> None:
    """Add a section, at the end or before another."""
    names = [known.name for known in SECTIONS]
    assert entry.name not in names, f"there is a section {entry.name!r} already"
    SECTIONS.insert(len(names) if before is None else names.index(before), entry)


def make_sections(records: Records) -> tuple[Shown, ...]:
    """Everything below the answer, in order."""
    made = [(entry, entry.make(records)) for entry in SECTIONS]
    return tuple(Shown(entry=entry, section=None if found is None else found.filled()) for entry, found in made)
