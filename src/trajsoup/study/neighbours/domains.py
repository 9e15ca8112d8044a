"""Experts on domains: a branch for each source of the corpus, T/N tokens each, in the baseline's recipe.

Branch-Train-Merge and Branch-Train-MiX start from the same ones, so they are trained once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trajsoup.lm.mixture import portions, source_families
from trajsoup.study.neighbours.lab import Lab

PIECES = 8  # states on the way, where the steps allow it, so that a killed expert goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Trained branches, in the order of their sources."""

    sources: tuple[str, ...]
    keys: tuple[str, ...]  # of their last checkpoints
    tokens: int  # of all together


def train_experts(lab: Lab, sources: Sequence[str]) -> Experts:
    """Train one for each of these sources of the corpus, or for every one that it has."""
    train = lab.bench.corpus.train
    names = tuple(sources) or source_families(train)
    steps = lab.horizon // len(names) // lab.like.step_tokens
    pieces = next(p for p in range(PIECES, 0, -1) if steps % p == 0)
    folder = lab.folder("experts", names)
    jobs = [
        lab.job(
            folder / f"expert-{number}",
            recipe=(recipe := replace(lab.like.recipe, sources=((name, 1.0),))),
            mixture=portions(train, recipe.sources, folder=lab.study.output / "branches"),
            horizon=steps * lab.like.step_tokens,
            checkpoint_every=steps // pieces * lab.like.step_tokens,
        )
        for number, name in enumerate(names, 1)
    ]
    lab.train(*jobs)
    return Experts(
        sources=names,
        keys=tuple(lab.key(job.folder / f"checkpoint-{steps}") for job in jobs),
        tokens=sum(job.horizon for job in jobs),
    )
