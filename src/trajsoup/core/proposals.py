"""Recipes around a baseline: each changes one thing, as far as the paper's branches do (tab:branch-mapping).

Order of the data is no proposal: every branch gets one of its own. The batch changes together with the learning rate, so
that the noise of a token stays about the same, as in the paper's EXP3.
"""

from __future__ import annotations

import math
from dataclasses import replace

from trajsoup.core.recipe import Optimizer, Recipe, Warmup
from trajsoup.core.schedule import Schedule, Shape

FACTOR = math.sqrt(2)  # of learning rates
DECAY = 0.1  # of the peak: the floor of a decaying schedule
MOMENTUM = 0.9
WEIGHT_DECAY = 0.1  # where the baseline has none


def proposals(baseline: Recipe) -> dict[str, Recipe]:
    """Candidates by name."""
    base = baseline
    found = {"lr-up": _with_rate(base, FACTOR), "lr-down": _with_rate(base, 1 / FACTOR)}
    if base.global_batch % 2 == 0:
        found["batch-half"] = replace(_with_rate(base, 1 / FACTOR), global_batch=base.global_batch // 2)
    if base.schedule.shape is Shape.CONSTANT:
        floor = _rounded(DECAY * base.peak_lr)
        found["decay"] = replace(base, schedule=Schedule(shape=Shape.LINEAR, decay_to=floor))
    else:
        found["constant"] = replace(base, schedule=Schedule())
    if base.optimizer is Optimizer.MUON:
        found["momentum"] = replace(base, momentum=0.0 if base.momentum else MOMENTUM)
        found["adamw"] = replace(base, optimizer=Optimizer.ADAMW)
    else:
        found["momentum"] = replace(base, betas=(_rounded(1 - 2 * (1 - base.betas[0])), base.betas[1]))
        found["muon"] = replace(base, optimizer=Optimizer.MUON)
    found["wd-up"] = replace(base, weight_decay=_rounded(2 * base.weight_decay) or WEIGHT_DECAY)
    if base.weight_decay:
        found["wd-down"] = replace(base, weight_decay=_rounded(base.weight_decay / 2))
    return {name: recipe for name, recipe in found.items() if recipe != base}


def on_order(recipe: Recipe, seed: int) -> Recipe:
    """The same recipe on another order of the data."""
    return replace(recipe, seed=seed)


def compressed(recipe: Recipe, *, horizon: int) -> Recipe:
    """As it trains in a probe: a warmup of so many tokens becomes a share; schedules end with the probe by themselves."""
    if recipe.warmup.tokens is None:
        return recipe
    return replace(recipe, warmup=Warmup(share=min(recipe.warmup.tokens / horizon, 1.0)))


def _with_rate(recipe: Recipe, factor: float) -> Recipe:
    """Another peak; the floor of a schedule stays at its share of it."""
    schedule = replace(recipe.schedule, decay_to=_rounded(recipe.schedule.decay_to * factor))
    return replace(recipe, peak_lr=_rounded(recipe.peak_lr * factor), schedule=schedule)


def _rounded(value: float) -> float:
    """Four digits: what people would write."""
    return float(f"{value:.4g}")
