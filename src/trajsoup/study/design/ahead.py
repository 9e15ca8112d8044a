"""How far a finished study would have been told by its own beginning: gains of pairs at the first horizon and at the last.

theory.json (anchors, pairs, soups by horizon) + gram.json (angles of early anchors) -> core/ahead.py
"""

from __future__ import annotations

import itertools

from trajsoup.core.ahead import Ahead, ahead
from trajsoup.core.geometry import cosines
from trajsoup.core.gram import combined
from trajsoup.core.soup import soup_row
from trajsoup.errors import StudyError
from trajsoup.study.choosing.field import Field
from trajsoup.study.price import by_horizon
from trajsoup.study.records.theory import TheoryRecord
from trajsoup.study.score.scorer import FORK_POINT
from trajsoup.study.workbench import Workbench


def gains_ahead(bench: Workbench, *, n_branches: int = 3) -> Ahead:
    """What the first horizon says of the last, at the largest K that both have; nothing is trained or scored."""
    theory = bench.records.require(TheoryRecord)
    measured = by_horizon(theory)
    first, last = min(measured), max(measured)
    shared = [k for k in measured[first].counts() if k in measured[last].counts()]
    if first == last or not shared:
        raise StudyError(
            f"{bench.setup.output} has soups at one horizon alone, so nothing lies ahead of anything: use `evaluate: "
            "{horizons: 4}`"
        )
    k = max(shared)
    return ahead(
        measured[first],
        measured[last],
        k_early=k,
        k_late=k,
        n_branches=min(n_branches, len(theory.branches)),
        cosines=_early_cosines(bench, bench.field(), theory.branches, tokens=first, k=k),
    )


def _early_cosines(
    bench: Workbench, field: Field, branches: tuple[str, ...], *, tokens: int, k: int
) -> dict[tuple[str, str], float]:
    """Between the ways of the branches' early anchors from the fork point; empty where nobody knows that."""
    if FORK_POINT not in bench.checkpoints:
        return {}
    names = sorted(branches)
    rows = [soup_row(field.chosen([name]), k=k, horizon=tokens, rank_by=field.rank_by, name=name) for name in names]
    keys = sorted({key for row in rows for key in row.weights})
    found = cosines(combined(bench.gram([FORK_POINT, *keys], centre=FORK_POINT), rows))
    return {(a, b): float(found[i, j]) for (i, a), (j, b) in itertools.combinations(enumerate(names), 2)}
