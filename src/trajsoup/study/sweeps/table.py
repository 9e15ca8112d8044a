"""The one table of sweeps: what each compares, what it is called, which settings it takes and what of it is reported.

    @sweep(name="mine", title="Mine", paper="a note", axis="x")
    def mine(field: Field, asked: Sweep) -> tuple[Entry, ...]: ...

What study files may name, the docs, records, comparisons and the report's titles follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trajsoup.core.table import Table
from trajsoup.errors import StudyError
from trajsoup.study.choosing.entries import Chosen, Entry
from trajsoup.study.choosing.field import Field

Pairs = list[tuple[Chosen, Chosen]]  # model, reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One named comparison, as the study file declares it."""

    name: str
    kind: str  # its name in the table
    branches: tuple[str, ...] = ()
    merge_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of sweep."""

    name: str
    title: str
    paper: str  # label of the paper's figure or table, or a citation
    axis: str
    entries: Callable[[Field, Sweep], Sequence[Entry]]  # none where the branches do not allow it
    settings: tuple[str, ...]  # fields of `Sweep` that mean something to it
    pairs: Callable[[Sequence[Chosen]], Pairs]  # what is compared on test
    says: Callable[[Sequence[Chosen]], tuple[str, ...]]  # what is to be seen in it, for the record
    matched: str  # what both sides of a comparison share
    cell: Callable[[Chosen], object] | None  # of each cell only the best is reported on test; None: everything is
    default: bool  # whether `sweeps: paper` makes it
    curve: bool  # its points have an order: drawn as a line
    own_section: bool  # a section of the page draws it; otherwise it stands among the ablations


SWEEPS: Table[Kind] = Table("comparison", error=StudyError)
Entries = Callable[[Field, Sweep], Sequence[Entry]]


def sweep(
    *,
    name: str,
    title: str,
    paper: str,
    axis: str,
    settings: tuple[str, ...] = (),
    pairs: Callable[[Sequence[Chosen]], Pairs] = lambda chosen: [],
    says: Callable[[Sequence[Chosen]], tuple[str, ...]] = lambda chosen: (),
    matched: str = "horizon",
    cell: Callable[[Chosen], object] | None = None,
    default: bool = True,
    curve: bool = False,
    own_section: bool = False,
) -> Callable[[Entries], Entries]:
    """Register a function that makes the entries of a sweep."""

    def register(entries: Entries) -> Entries:
        found = Kind(
            name=name,
            title=title,
            paper=paper,
            axis=axis,
            entries=entries,
            settings=settings,
            pairs=pairs,
            says=says,
            matched=matched,
            cell=cell,
            default=default,
            curve=curve,
            own_section=own_section,
        )
        SWEEPS.add(name, found)
        return entries

    return register


def sweep_entries(field: Field, asked: Sweep) -> tuple[Entry, ...]:
    """The entries of one named comparison."""
    return tuple(SWEEPS[asked.kind].entries(field, asked))
