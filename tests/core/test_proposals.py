"""Recipes around a baseline: each is another one, is valid, and changes what its name says."""

import pytest

from trajsoup.core.proposals import compressed, on_order, proposals
from trajsoup.core.recipe import Optimizer, Recipe, Warmup, perturbations, require_distinct
from trajsoup.core.schedule import Schedule, Shape

BASELINES = {
    "the paper's": Recipe(),
    "adamw": Recipe(optimizer=Optimizer.ADAMW),
    "decaying": Recipe(schedule=Schedule(shape=Shape.LINEAR, decay_to=3.3e-4)),
    "an odd batch": Recipe(global_batch=1),
    "no decay": Recipe(weight_decay=0.0, momentum=0.9),
}


@pytest.mark.parametrize("name", BASELINES)
def test_every_proposal_is_a_recipe_of_its_own(name):
    base = BASELINES[name]
    found = proposals(base)
    require_distinct({"baseline": base, **found})
    assert len(found) >= 6
    assert all("seed" not in perturbations(recipe, baseline=base) for recipe in found.values())


def test_the_papers_baseline_gets_the_papers_kinds_of_branches():
    found = {name: set(perturbations(recipe, baseline=Recipe())) for name, recipe in proposals(Recipe()).items()}
    assert found["batch-half"] == {"peak_lr", "global_batch"}
    assert found["decay"] == {"schedule"}
    assert found["momentum"] == {"momentum"}
    assert found["wd-up"] == found["wd-down"] == {"weight_decay"}


def test_a_lower_peak_never_lies_below_the_floor_of_its_schedule():
    lower = proposals(BASELINES["decaying"])["lr-down"]
    assert lower.schedule.decay_to < lower.peak_lr


def test_a_warmup_of_tokens_is_compressed_with_the_probe_and_a_share_is_one_already():
    assert compressed(Recipe(warmup=Warmup(tokens=50)), horizon=1000).warmup == Warmup(share=0.05)
    assert compressed(Recipe(), horizon=1000) == Recipe()
    assert on_order(Recipe(), 7) == Recipe(seed=7)
