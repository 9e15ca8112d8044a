"""How far a finished study would have been told by its own beginning: gains of pairs early and at the end.

    the checkpoint of every branch at the first horizon, and at the last -> their midpoints on validation -> core/ahead.py

As in a probe, the points are single checkpoints: the anchors of a late horizon may be made of early checkpoints.
"""

from __future__ import annotations

import itertools
import math

from trajsoup.core.ahead import Ahead, ahead
from trajsoup.core.estimators import SoupLosses
from trajsoup.core.geometry import cosines
from trajsoup.core.gram import combined
from trajsoup.core.scores import TestScores, ValidationScores
from trajsoup.core.soup import Row
from trajsoup.errors import StudyError
from trajsoup.study.choosing.field import Field
from trajsoup.study.score.scorer import FORK_POINT
from trajsoup.study.workbench import Workbench


def gains_ahead(bench: Workbench, *, n_branches: int = 3, late_on_test: bool = False) -> Ahead:
    """What the first horizon says of the last; pairs that were not scored yet are. Of the last, on validation or on test."""
    field = bench.field()
    first, last = field.horizons[0], field.horizons[-1]
    if first == last:
        raise StudyError(
            f"{bench.setup.output} has one horizon alone, so nothing lies ahead of anything: use `evaluate: {{horizons: 4}}`"
        )
    rows = {tokens: _rows(field, tokens) for tokens in (first, last)}
    asked = [first] if late_on_test else [first, last]
    scores: dict[str, ValidationScores | TestScores] = {}
    scores |= bench.scorer.validate([row for at in asked for row in rows[at].values()], what="pairs", tasks=False)
    if late_on_test:
        scores |= bench.scorer.test_losses(list(rows[last].values()))

    def losses(tokens: int) -> SoupLosses:
        found = {group: scores[row.name].losses for group, row in rows[tokens].items()}
        known = {group: of_row.loss() for group, of_row in found.items() if of_row is not None}
        return SoupLosses(soups={(frozenset(group), 1): loss for group, loss in known.items() if math.isfinite(loss)})

    return ahead(
        losses(first),
        losses(last),
        k_early=1,
        k_late=1,
        n_branches=min(n_branches, len(field.admitted)),
        cosines=_cosines(bench, rows[first]),
    )


def _rows(field: Field, tokens: int) -> dict[tuple[str, ...], Row]:
    """The checkpoint of every branch there, and the midpoint of every pair."""
    keys = {p.branch: c.key for p in field.chosen(field.admitted) for c in p.candidates if c.tokens == tokens}
    groups = [*((name,) for name in sorted(keys)), *itertools.combinations(sorted(keys), 2)]
    return {
        group: Row(name=f"ahead/{'+'.join(group)}@{tokens}", weights={keys[n]: 1 / len(group) for n in group})
        for group in groups
    }


def _cosines(bench: Workbench, rows: dict[tuple[str, ...], Row]) -> dict[tuple[str, str], float]:
    """Between the ways of the early checkpoints from the fork point; empty where nobody knows that."""
    alone = {group[0]: row for group, row in rows.items() if len(group) == 1}
    if FORK_POINT not in bench.checkpoints or len(alone) < 2:
        return {}
    keys = [key for row in alone.values() for key in row.weights]
    found = cosines(combined(bench.gram([FORK_POINT, *keys], centre=FORK_POINT), list(alone.values())))
    pairs = itertools.combinations(enumerate(alone), 2)
    return {(a, b): float(found[i, j]) for (i, a), (j, b) in pairs}
