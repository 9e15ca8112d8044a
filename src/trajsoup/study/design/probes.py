"""The probes of a design: a study of its own, short and below the one that is designed.

    study, candidates -> recipes on the baseline's order, and one on another -> a short study -> plan, train, validation

Schedules are part of the recipes and end with the probe: their difference would be invisible in the first twentieth of
the horizon. What was trained stays, so a killed design goes on, and one that is asked again trains nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from trajsoup.core.proposals import compressed, on_order, proposals
from trajsoup.core.quantity import format_tokens
from trajsoup.core.recipe import Recipe
from trajsoup.core.signal import Signal
from trajsoup.errors import StudyError
from trajsoup.study.file.study import Limited, Study
from trajsoup.study.records.files import digest_of
from trajsoup.study.train.plan import plan_study

FOLDER = "design"  # below the study
SHARE = 0.05  # of the horizon
SAVED = 4  # checkpoints of a probe: the last is compared, all together tell where J is going
OTHER_SEED = 7919  # added to the baseline's seed for that order


def candidates_of(study: Study, *, propose: bool) -> dict[str, Recipe]:
    """The study's branches and, where asked for, proposals; each on the baseline's order, none of them twice."""
    seed = study.baseline.seed
    given = {name: on_order(recipe, seed) for name, recipe in study.recipes.items()}
    offered = proposals(study.baseline) if propose else {}
    found: dict[str, Recipe] = {}
    seen = {_key(study.baseline)}
    taken = {f"{name}-2" if name in given else name: recipe for name, recipe in offered.items()}
    for name, recipe in (*given.items(), *taken.items()):
        if _key(recipe) not in seen:
            seen.add(_key(recipe))
            found[name] = recipe
    if not found:
        raise StudyError(
            f"{study.path}: no branch changes more than the order of the data, so there is nothing to compare: add "
            "candidates to `branches`, or leave out --no-propose"
        )
    return found


def baseline_name(study: Study) -> str:
    """The branch that changes nothing, or a name that no branch has."""
    plain = next((name for name, recipe in study.recipes.items() if recipe == study.baseline), None)
    return plain or _free("baseline", study)


def order_name(study: Study) -> str:
    """Of the baseline on another order."""
    return _free("order", study)


def probe_study(study: Study, candidates: Mapping[str, Recipe], *, share: float) -> Study:
    """The short study: the baseline, the same on another order, every candidate."""
    base = study.baseline
    recipes = {baseline_name(study): base, order_name(study): on_order(base, base.seed + OTHER_SEED), **candidates}
    recipes = {name: compressed(recipe, horizon=study.horizon) for name, recipe in recipes.items()}
    unit = _unit(study, recipes)
    every = max(round(share * study.horizon / SAVED / unit), 1) * unit
    if every * SAVED > study.horizon / 2:
        raise StudyError(
            f"{study.path}: probes save {SAVED} times, and batches meet every {format_tokens(unit)} tokens, so a probe would "
            f"take {format_tokens(every * SAVED)} of {format_tokens(study.horizon)}: use batches that divide one another, or "
            "fewer candidates"
        )
    shape = digest_of([[name, recipe.effective()] for name, recipe in recipes.items()] + [every, study.digest])
    return dataclasses.replace(
        study,
        recipes=recipes,
        horizon=every * SAVED,
        checkpoint_every=every,
        output=study.output / FOLDER / f"probes-{shape[:12]}",
        evaluation=dataclasses.replace(
            study.evaluation, items=0, lm_eval=None, rank_by=Signal.LOSS, baseline=None, force=(), methods=()
        ),
        limited=Limited.PREFIX,
        sweeps=(),
        sft=None,
        connectivity=None,
        neighbours=None,
        retention=None,
        publish=None,
        seeds=1,
    )


def rounded_words(study: Study, probes: Study, *, share: float) -> str | None:
    """What was made of the length that was asked for; None where it is that length."""
    if probes.horizon == round(share * study.horizon):
        return None
    return (
        f"probes take {format_tokens(probes.horizon)} tokens, {probes.horizon / study.horizon:.1%} of the horizon, for the "
        f"{share:.1%} of --length: they save {SAVED} times, and all recipes end a step "
        f"together every {format_tokens(_unit(study, probes.recipes))}"
    )


def _unit(study: Study, recipes: Mapping[str, Recipe]) -> int:
    """Tokens after which all recipes have taken whole steps."""
    length = plan_study(study).sequence_length
    return math.lcm(*(recipe.global_batch * length for recipe in recipes.values()))


def _free(name: str, study: Study) -> str:
    return name if name not in study.recipes else f"{name}-0"


def _key(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in recipe.effective().items() if name != "seed")
