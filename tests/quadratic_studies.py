"""Simulated studies whose loss is exactly quadratic, on documents that disagree: the truth is known, validation is noisy.

Every document has a minimum of its own, so the mean over some of them is the same bowl with another bottom: what is fitted
to few documents is fitted to their bottom. Branches lie around the true one as far as their recipe and their noise carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.gram import WHOLE, Gram, Products
from trajsoup.core.methods.asking import Decision, Measure, settle
from trajsoup.core.methods.freedom import Freedom, Stop
from trajsoup.core.methods.table import METHODS
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.core.soup import Row

DIMENSIONS, LAYERS, EVERY = 60, 4, 10
KS = (1, 2, 4, 6, 8, 10)


@dataclass(frozen=True, slots=True, eq=False)
class QuadraticStudy:
    """Points by key, the curvature, and what every document pulls towards."""

    points: dict[str, NDArray[np.float64]]
    curvature: NDArray[np.float64]
    pulls: NDArray[np.float64]  # documents x dimensions
    pools: tuple[Pool, ...] = ()
    asked: list[int] = field(default_factory=list)  # rows, in every round

    def point(self, row: Row) -> NDArray[np.float64]:
        return np.sum([weight * self.points[key] for key, weight in row.weights.items()], axis=0)

    def excess(self, weights: dict[str, float]) -> float:
        """The true loss above the bottom."""
        return 0.5 * float(self.curvature @ self.point(Row(name="it", weights=weights)) ** 2)

    def scores(self, rows: Sequence[Row]) -> dict[str, ValidationScores]:
        self.asked.append(len(rows))
        return {row.name: ValidationScores(losses=self.documents(self.point(row))) for row in rows}

    def documents(self, x: NDArray[np.float64]) -> DocumentLosses:
        nll = 2 + 0.5 * float(self.curvature @ x**2) - self.pulls @ (self.curvature * x)
        return DocumentLosses(nll=nll, targets=np.ones(len(nll), np.int64))

    def products(self, request: Measure) -> Gram:
        d = np.array([self.points[key] - self.points[request.centre] for key in request.keys])
        layers = np.arange(DIMENSIONS) * LAYERS // DIMENSIONS
        parts = {WHOLE: d, **{f"layer {i}": d[:, layers == i] for i in range(LAYERS)}}
        none = np.zeros(len(d))
        return Gram(
            keys=request.keys,
            centre=request.centre,
            groups={
                name: Products(inner=x @ x.T, along_centre=none, centre_square=0.0, elements=x.shape[1])
                for name, x in parts.items()
            },
        )

    def choose(self, name: str, **given: str) -> Decision:
        """The decision of a method over all branches, with every K."""
        method = METHODS[name]
        stop = Stop(branches=tuple(pool.branch for pool in self.pools))
        freedom = Freedom(pools=self.pools, stops=(stop,), ks=KS, free=("k",))
        (found,) = settle([method.ask(freedom, **method.settings(given))], self.scores, measuring=self.products)
        return found


def simulated_study(
    seed: int, *, unequal: bool, disagree: float, branches: int = 4, saved: int = 10, documents: int = 200
) -> QuadraticStudy:
    """Branches whose recipes are alike or not, on documents whose minima lie `disagree` apart in every dimension."""
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal
    curvature = 10 ** rng.uniform(-2, 0, DIMENSIONS)
    common = 0.1 * draw(DIMENSIONS)
    points: dict[str, NDArray[np.float64]] = {}
    for n in range(branches):
        offset, noise = (rng.uniform(0.2, 2.0), rng.uniform(0.3, 2.0)) if unequal else (1.0, 1.0)
        centre = common + 0.3 * offset * draw(DIMENSIONS)
        wander = draw(DIMENSIONS)
        for j in range(saved):
            wander = 0.3 * wander + np.sqrt(1 - 0.3**2) * draw(DIMENSIONS)
            points[f"EXP{n + 1}/{j}"] = centre + 0.5 * noise * wander
    bare = QuadraticStudy(points, curvature, disagree * draw((documents, DIMENSIONS)))
    pools = tuple(
        Pool(
            branch=f"EXP{n + 1}",
            candidates=tuple(
                Candidate(
                    key=(key := f"EXP{n + 1}/{j}"),
                    branch=f"EXP{n + 1}",
                    tokens=(j + 1) * EVERY,
                    val_loss=bare.documents(points[key]).loss(),
                )
                for j in range(saved)
            ),
        )
        for n in range(branches)
    )
    return QuadraticStudy(points, curvature, bare.pulls, pools)
