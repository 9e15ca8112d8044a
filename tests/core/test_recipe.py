import dataclasses

import pytest

from trajsoup.core.recipe import Optimizer, Recipe, Warmup, perturbations, require_distinct
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.errors import RecipeError

EXP1 = Recipe()
PAPER = {
    "EXP1": EXP1,
    "EXP2": dataclasses.replace(EXP1, seed=1001),
    "EXP3": dataclasses.replace(EXP1, peak_lr=2.40e-4, global_batch=128),
    "EXP4": dataclasses.replace(EXP1, schedule=Schedule(shape=Shape.LINEAR, decay_to=3.39e-5)),
    "EXP5": dataclasses.replace(EXP1, momentum=0.9),
}


def test_the_default_recipe_is_the_papers_baseline():
    assert EXP1.effective() == {
        "optimizer": "muon", "momentum": "0", "peak_lr": "0.000339", "global_batch": "256", "seed": "1234",
        "schedule": "constant", "warmup": "1%", "weight_decay": "0.1", "clip": "1", "betas": "0.9, 0.95",
    }  # fmt: skip


def test_perturbations_are_the_bold_entries_of_the_papers_table():
    changed = {name: list(perturbations(recipe, baseline=EXP1)) for name, recipe in PAPER.items()}
    assert changed == {
        "EXP1": [], "EXP2": ["seed"], "EXP3": ["peak_lr", "global_batch"], "EXP4": ["schedule"], "EXP5": ["momentum"],
    }  # fmt: skip
    assert perturbations(PAPER["EXP4"], baseline=EXP1)["schedule"] == ("constant", "linear decay to 3.39e-05")


def test_the_papers_five_branches_are_distinct():
    require_distinct(PAPER)


def test_two_branches_with_one_recipe_are_refused_by_name():
    with pytest.raises(RecipeError, match=r"'EXP1' and 'COPY' have the same recipe"):
        require_distinct({**PAPER, "COPY": Recipe()})


def test_a_field_without_effect_does_not_make_branches_different():
    adamw = Recipe(optimizer=Optimizer.ADAMW)
    with pytest.raises(RecipeError, match="same recipe"):
        require_distinct({"A": adamw, "B": dataclasses.replace(adamw, momentum=0.9)})
    decayed = dataclasses.replace(EXP1, schedule=Schedule(decay_to=1e-5))
    with pytest.raises(RecipeError, match="same recipe"):
        require_distinct({"A": EXP1, "B": decayed})


def test_warmup_is_a_share_of_the_horizon_or_tokens():
    assert Warmup().length(600 * 10**9) == 6 * 10**9
    assert Warmup(tokens=5000).length(600 * 10**9) == 5000


@pytest.mark.parametrize(
    "wrong",
    [
        {"peak_lr": 0.0}, {"peak_lr": float("nan")}, {"momentum": 1.0}, {"global_batch": 0}, {"seed": -1},
        {"weight_decay": -0.1}, {"clip": 0.0}, {"betas": (0.9, 1.0)},
    ],
)  # fmt: skip
def test_an_impossible_value_is_refused_with_its_field(wrong):
    with pytest.raises(RecipeError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_a_floor_above_the_peak_is_refused():
    with pytest.raises(RecipeError, match="above the peak_lr"):
        Recipe(schedule=Schedule(shape=Shape.COSINE, decay_to=1.0))


@pytest.mark.parametrize(("theirs", "ours"), [("lr", "peak_lr"), ("batch_size", "global_batch"), ("grad_clip", "clip")])
def test_what_other_trainers_call_a_field_is_answered_with_its_name_here(theirs, ours):
    assert Recipe.MISPLACED[theirs].endswith(f"did you mean {ours!r}?")
