"""The field `keep` of a study file: which checkpoints of its branches lie on disk while it trains.

With `needed`, the rows of the main table and of the theory are made: the K best and the last of each branch at the full
horizon, at T/N and at the parts of the horizon. Geometry takes every checkpoint, so it is left out. So does Full Soup: where
`evaluate: {methods: [full-soup]}` asks for it, sums of all checkpoints are kept (study/train/sums.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from trajsoup.core.methods.table import METHODS
from trajsoup.core.selection import TOP_K
from trajsoup.errors import StudyError
from trajsoup.study.file.evaluation import EvaluationPlan
from trajsoup.study.file.trainer import Builtin, TrainWith
from trajsoup.study.sweeps.table import Sweep

SPARING = ("scaling", "interpolation")  # comparisons of the K best at the full horizon
FULL_SOUP = "full-soup"  # the method of every study that takes every checkpoint


class Keep(StrEnum):
    """Which of the checkpoints of its branches a study has on disk while it trains."""

    ALL = "all"
    NEEDED = "needed"  # by a row that may still be made; the others are deleted once they are scored


class Evaluated(Protocol):
    """What is asked of a study here; a Setup is one."""

    @property
    def evaluation(self) -> EvaluationPlan: ...  # noqa: D102


def keeps_needed(setup: object) -> bool:
    """Whether the study deletes checkpoints while it trains. Runs that exist belong to somebody else."""
    return getattr(setup, "keep", Keep.ALL) is Keep.NEEDED


def keeps_sums(setup: Evaluated) -> bool:
    """Whether it keeps the sums that a Full Soup is made of."""
    return keeps_needed(setup) and FULL_SOUP in setup.evaluation.methods


def leaves_out(setup: Evaluated) -> tuple[str, ...]:
    """Methods of every study that this one cannot show."""
    return (FULL_SOUP,) if keeps_needed(setup) and not keeps_sums(setup) else ()


def require_sparing(
    *, trainer: TrainWith, sweeps: Sequence[Sweep], methods: Sequence[str], others: Mapping[str, object | None]
) -> None:
    """Refuse, beside `keep: needed`, whatever takes checkpoints that only the end of training names.

    `others` are fields of the study that cannot stand beside it, None where they were left out.
    """

    def refuse(what: str, cure: str) -> None:
        raise StudyError(f"keep: needed deletes checkpoints, and {what}: {cure}, or leave out `keep`")

    if not isinstance(trainer, Builtin):
        refuse("it stops branches while they are scored, which a command cannot be told", "use the builtin trainer")
    for sweep in sweeps:
        if sweep.kind not in SPARING:
            refuse(
                f"the comparison {sweep.kind!r} takes other ones than the K best and the last",
                "write `sweeps: []`, or of " + " and ".join(SPARING),
            )
    for name in methods:
        if METHODS[name].select != TOP_K and name != FULL_SOUP:
            refuse(f"the method {name!r} takes other ones than the K best", "leave it out of evaluate.methods")
    for field, asked in others.items():
        if asked is not None:
            refuse(f"`{field}` may take any of them", f"leave out `{field}`")
