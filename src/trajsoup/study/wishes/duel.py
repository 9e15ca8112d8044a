"""A choice against the plain one, over seeds: the same test documents, an interval over seeds and documents together.

rows of one seed -> their losses on test, by document -> a model, or the mean of several -> duel over seeds (core/crossed.py)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trajsoup.core.crossed import Crossed, crossed_interval
from trajsoup.core.scores import DocumentLosses
from trajsoup.core.soup import Row
from trajsoup.core.statistics import paired_losses
from trajsoup.errors import ScoreError
from trajsoup.study.workbench import Workbench


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """A choice minus the plain one, in loss on test: below zero it is better."""

    plain: str  # against what, in words
    by_seed: Mapping[int, float]
    over_seeds: Crossed | None  # None: one seed alone
    registered: bool = True  # whether the verdict on the method hangs on it; else it is told beside

    @property
    def mean(self) -> float:
        """Over seeds."""
        return sum(self.by_seed.values()) / len(self.by_seed)

    @property
    def same(self) -> bool:
        """The same model in every seed."""
        return not any(self.by_seed.values())

    @property
    def better(self) -> bool:
        """The whole interval says so."""
        return self.over_seeds is not None and self.over_seeds.high < 0

    @property
    def worse(self) -> bool:
        """Likewise."""
        return self.over_seeds is not None and self.over_seeds.low > 0


Losses = Mapping[int, DocumentLosses]  # by seed


def duel(mine: Losses, plain: Losses, *, against: str, registered: bool = True) -> Duel:
    """Compare two models of every seed that has both."""
    seeds = [seed for seed in mine if seed in plain]
    pairs = [paired_losses(mine[seed], plain[seed]) for seed in seeds]
    weights = pairs[0][1]
    if any(not np.array_equal(weights, w) for _, w in pairs):
        raise ScoreError("the seeds were scored on different documents: use seeds of one study")
    return Duel(
        plain=against,
        by_seed={seed: float(d.sum() / w.sum()) for seed, (d, w) in zip(seeds, pairs, strict=True)},
        over_seeds=crossed_interval([np.stack([d for d, _ in pairs])], weights=[weights]) if len(seeds) > 1 else None,
        registered=registered,
    )


def on_test(bench: Workbench, rows: Sequence[Row]) -> dict[str, DocumentLosses]:
    """Losses of rows on test by name; what was scored there before is not scored again."""
    unique = {row.name: row for row in rows}
    found = bench.scorer.test_losses(list(unique.values()))
    return {name: scores.losses for name, scores in found.items() if scores.losses is not None}


def mean_of(models: Sequence[DocumentLosses]) -> DocumentLosses:
    """The mean loss of several models, document by document: what one of them drawn by lot is expected to have."""
    return replace(models[0], nll=np.mean([model.nll for model in models], axis=0))
