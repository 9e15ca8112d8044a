"""The field `keep` of a study file: which checkpoints of its branches lie on disk while it trains.

With `needed`, the rows of the main table and of the theory are made: the K best and the last of each branch at the full
horizon, at T/N and at the parts of the horizon. Full Soup and geometry take every checkpoint, so they are left out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from trajsoup.core.methods.table import METHODS
from trajsoup.core.selection import TOP_K
from trajsoup.errors import StudyError
from trajsoup.study.file.trainer import Builtin

if TYPE_CHECKING:
    from trajsoup.study.file.study import Setup, Study

SPARING = ("scaling", "interpolation")  # comparisons of the K best at the full horizon
TAKES_ALL = ("full-soup",)  # methods of every study that take every checkpoint


class Keep(StrEnum):
    """Which of the checkpoints of its branches a study has on disk while it trains."""

    ALL = "all"
    NEEDED = "needed"  # by a row that may still be made; the others are deleted once they are scored


def keeps_needed(setup: Setup) -> bool:
    """Whether the study deletes checkpoints while it trains. Runs that exist belong to somebody else."""
    return getattr(setup, "keep", Keep.ALL) is Keep.NEEDED


def require_sparing(study: Study) -> None:
    """What `keep: needed` cannot be combined with: whatever takes checkpoints that only the end of training names."""

    def refuse(what: str, cure: str) -> None:
        raise StudyError(f"keep: needed deletes checkpoints, and {what}: {cure}, or leave out `keep`")

    if not isinstance(study.trainer, Builtin):
        refuse("it stops branches while they are scored, which a command cannot be told", "use the builtin trainer")
    for sweep in study.sweeps:
        if sweep.kind not in SPARING:
            refuse(
                f"the comparison {sweep.kind!r} takes other ones than the K best and the last",
                "write `sweeps: []`, or of " + " and ".join(SPARING),
            )
    for name in study.evaluation.methods:
        if METHODS[name].select != TOP_K:
            refuse(f"the method {name!r} takes other ones than the K best", "leave it out of evaluate.methods")
    for field, asked in (("connectivity", study.connectivity), ("neighbours", study.neighbours)):
        if asked is not None:
            refuse(f"`{field}` goes back to some of them", "leave it out")
    if study.allocation is not None:
        refuse("adaptive allocation does not know where branches will end", "leave out `allocation`")
