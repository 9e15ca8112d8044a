"""Worlds whose losses follow a law: what a policy of branches should have done is known."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from trajsoup.core.adaptive import Course, Table

DOCUMENTS = 80


@dataclass
class LawWorld:
    """L(N, t) = floor + alpha (t/T)^-p + b (t/T)^q / N, with branches that are `worse` by so many nats."""

    alpha: float = 0.05
    p: float = 0.5
    b: float = 0.05
    q: float = 0.0
    noise: float = 0.0  # of a document's loss, independent from row to row
    worse: dict[str, float] = field(default_factory=dict)
    drifts: dict[str, float] = field(default_factory=dict)  # of J, for each unit of log t
    names: tuple[str, ...] = ("EXP1", "EXP2", "EXP3", "EXP4", "EXP5", "EXP6")
    positions: tuple[int, ...] = tuple(range(100, 1300, 100))
    seed: int = 0
    saturated: int = 10**9  # tokens from which on nothing changes
    diverge: dict[str, int] = field(default_factory=dict)  # where
    reached: list[tuple[tuple[str, ...], int]] = field(default_factory=list)

    def a(self, t):
        return 2 + self.alpha * (t / self.positions[-1]) ** -self.p

    def spread(self, t):
        return self.b * (t / self.positions[-1]) ** self.q

    def loss(self, names, t):
        return self.a(t) + self.spread(t) / len(names) + float(np.mean([self.worse.get(n, 0.0) for n in names]))

    def reach(self, branches, tokens):
        self.reached.append((tuple(branches), tokens))
        return {name: "diverged" for name in branches if tokens >= self.diverge.get(name, 10**9)}

    def _documents(self, names, t):
        t = min(t, self.saturated)
        rng = np.random.default_rng([self.seed, t, *(self.names.index(n) for n in names)])
        return self.loss(names, t) + self.noise * rng.standard_normal(DOCUMENTS)

    def table(self, branches, tokens):
        names = list(branches)
        return Table(
            tokens=tokens,
            k=1,
            anchors=np.array([self._documents([n], tokens) for n in names]),
            pairs={
                (i, j): self._documents([names[i], names[j]], tokens)
                for i, j in itertools.combinations(range(len(names)), 2)
            },
            targets=np.ones(DOCUMENTS),
        )

    def course(self, branch, tokens):
        rate = self.drifts.get(branch, 0.0)
        return Course(gaps=[(t, rate * np.log(t / 50)) for t in self.positions if t <= tokens])
