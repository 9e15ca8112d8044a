"""Checkpoints in a quadratic bowl: the loss of any weighted mean of them is known, so a study can be made of them.

Nothing is trained, so the shape is free: any number of branches, checkpoints and logged points, still running, with a
branch that failed or was rejected, or with names that are hostile to a page.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass

import numpy as np

from trajsoup.core.scores import DocumentLosses, TaskResult

B = 10**9
FLOOR = 1.92
DOCUMENTS, ITEMS = 90, 250
SOURCES = ("web", "books", "code")
CATEGORIES = {
    "General Knowledge & Reasoning": (0.66, 0.50),
    "Language Modeling": (0.88, 0.30),
    "Professional Knowledge": (0.67, 0.45),
    "Math": (0.76, 0.65),
    "Code": (0.70, 0.75),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What kind of study."""

    branches: tuple[str, ...] = ("EXP1", "EXP2", "EXP3", "EXP4", "EXP5")
    checkpoints: int = 24
    logged: int = 200
    horizon: int = 600 * B
    rejected: str | None = None
    failed: str | None = None
    foreign: bool = False  # runs that exist: no recipe, no FLOPs, no logged loss
    until: str = "answer"  # the last stage that has a record; "train" with unfinished branches is "plan"
    done: float = 1.0  # share of training that metrics show
    title: str = "Five branches of a small MoE"
    seed: int = 7


class Bowl:
    """Checkpoints in a quadratic bowl, and the scores of any row of W over them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.random = np.random.default_rng(shape.seed)
        self.keys: dict[str, list[str]] = {}
        self.tokens: dict[str, int] = {}
        self.x: dict[str, np.ndarray] = {}
        self.dimension = d = 48
        fork = self.random.normal(size=d) * 0.045
        self.fork = fork
        common = self.random.normal(size=d) * 0.008
        for branch in shape.branches:
            offset = self.random.normal(size=d) * (0.03 if branch == shape.rejected else 0.0085)
            self.keys[branch] = []
            for i in range(1, shape.checkpoints + 1):
                t = i / shape.checkpoints
                key = f"branches/{branch}/checkpoint-{i * 50}"
                arrive = 1 - math.exp(-7 * t)
                self.x[key] = fork * (1 - arrive) + (offset + common) * arrive + self.random.normal(size=d) * 0.0105
                self.tokens[key] = shape.horizon * i // shape.checkpoints
                self.keys[branch].append(key)

    def loss(self, weights: dict[str, float] | None) -> float:
        point = self.fork if weights is None else sum(w * self.x[k] for k, w in weights.items())
        return FLOOR + 40 * float(point @ point) / len(point) * 12

    def categories(self, weights: dict[str, float]) -> dict[str, float]:
        loss = self.loss(weights)
        jitter = np.random.default_rng(int(hashlib.sha256(json.dumps(weights).encode()).hexdigest()[:8], 16))
        return {
            name: top - slope * (loss - FLOOR) + float(jitter.normal()) * 0.0012
            for name, (top, slope) in CATEGORIES.items()
        }

    def branch_of(self, key: str) -> str:
        return next(b for b, keys in self.keys.items() if key in keys)

    def scores(self, kind, weights: dict[str, float], *, seed: int):
        """Scores of documents and items, as a scorer would give them; `seed` tells validation from test."""
        random = np.random.default_rng(seed)
        targets = random.integers(200, 2000, DOCUMENTS)
        hard, noisy = random.normal(size=DOCUMENTS) * 0.2, random.normal(size=(DOCUMENTS, self.dimension)) * 0.02
        point = sum(w * self.x[k] for k, w in weights.items())
        source = np.arange(DOCUMENTS, dtype=np.uint8) % len(SOURCES)
        each = self.loss(weights) + hard + noisy @ point + np.array([0.2, 0.0, -0.7])[source]
        values = self.categories(weights)
        return kind(
            losses=DocumentLosses(nll=each * targets, targets=targets, source=source, source_names=SOURCES),
            tasks=tuple(
                TaskResult(name=f"{name} 1", category=name, correct=(random.random(ITEMS) < values[name]).astype(float))
                for name in values
            ),
        )
