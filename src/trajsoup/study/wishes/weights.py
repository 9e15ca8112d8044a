"""A. Quadratic weights against the soup that validation chose, on test."""

from __future__ import annotations

from dataclasses import dataclass

from trajsoup.core.budget import Setting
from trajsoup.core.methods.asking import Option, Promise
from trajsoup.core.methods.table import METHODS
from trajsoup.core.scores import DocumentLosses
from trajsoup.study.choosing.entries import choose_entries, entry_of
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.stages.estimates import row_of
from trajsoup.study.wishes.duel import on_test
from trajsoup.study.workbench import Workbench

PLAIN = "trajectory-soup/extended"
OVER = ("anchors", "checkpoints")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weighed:
    """One seed, weights over anchors or over checkpoints; losses on test."""

    promise: Promise | None  # None: too few validation documents, so nothing was tried
    taken: DocumentLosses  # what the method ends with: its weights where unseen documents agreed, else the plain soup
    tried: DocumentLosses  # its weights, taken or not
    uniform: DocumentLosses  # the soup of the same checkpoints with equal weights, which the promise is about
    plain: DocumentLosses  # the soup that validation chose

    @property
    def gained(self) -> float:
        """What the weights took off the loss of the uniform soup on test."""
        return self.uniform.loss() - self.tried.loss()


def weighed(bench: Workbench) -> dict[str, Weighed]:
    """By what is weighed; all admitted branches at the full horizon, as the Extended soup has them."""
    field, method = bench.field(), METHODS["quadratic"]
    sizes = range(2, len(field.pools) + 1)
    stops = field.stops(sizes, setting=Setting.EXTENDED, budget=field.horizon)
    freedom = field.freedom(method, stops, free=("branches", "k"))
    entries = [
        entry_of(method, freedom, key=f"quadratic/{over}", label=over, settings={"over": over, "few": "uniform"})
        for over in OVER
    ]
    chosen = choose_entries(entries, bench.scoring("quadratic"), measuring=bench.measure)
    (plain,) = (row_of(row) for row in bench.records.require(RowsRecord).rows if row.name == PLAIN)
    trials = [_trial(c.decision.compared, c.option) for c in chosen]
    rows = [plain, *(c.row for c in chosen), *(option.row for trial in trials for option in trial)]
    losses = on_test(bench, rows)
    return {
        over: Weighed(
            promise=c.decision.promise,
            taken=losses[c.row.name],
            tried=losses[tried.name],
            uniform=losses[uniform.name],
            plain=losses[plain.name],
        )
        for over, c, (tried, uniform) in zip(OVER, chosen, trials, strict=True)
    }


def _trial(compared: tuple[Option, ...], taken: Option) -> tuple[Option, Option]:
    """The weights that were tried last, and the uniform soup of the same K, which was scored before them."""
    tried = compared[-1] if compared else taken
    whole = len(tried.branches) * (tried.k or 1)
    alike = (o for o in compared if (o.k, o.branches, len(o.weights)) == (tried.k, tried.branches, whole))
    return tried, next(alike, taken)
