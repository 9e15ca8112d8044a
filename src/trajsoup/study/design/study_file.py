"""The study that a design ends with: the file it was asked about, with the picked recipes as its branches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from trajsoup.core.recipe import Recipe, Warmup
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.errors import StudyError
from trajsoup.store.publish import write_atomic
from trajsoup.store.regular import read_small
from trajsoup.store.yaml_file import load_yaml
from trajsoup.study.file.study import Study, load_study
from trajsoup.study.records.design import DesignRecord

ORDERS = 101  # between the seeds of two branches


def changes_of(recipe: Recipe, *, baseline: Recipe) -> dict[str, Any]:
    """The fields that differ, as a study file has them."""
    pairs = ((f.name, getattr(recipe, f.name), getattr(baseline, f.name)) for f in dataclasses.fields(Recipe))
    return {name: _written(mine) for name, mine, theirs in pairs if mine != theirs}


def picked_branches(study: Study, chosen: Sequence[str], candidates: Mapping[str, Recipe]) -> dict[str, dict[str, Any]]:
    """`branches` of the study file: each recipe as the study has it, and with an order of the data of its own.

    The baseline comes first; what is no candidate is the baseline on another order.
    """
    base, found = study.baseline, dict[str, dict[str, Any]]()
    for place, name in enumerate(chosen):
        recipe = study.recipes.get(name) or candidates.get(name, base)
        changes = changes_of(recipe, baseline=base)
        if place and "seed" not in changes:
            changes["seed"] = base.seed + ORDERS * place
        copies = sum(other.startswith(name) for other in found)
        found[name if name not in found else f"{name}-{copies + 1}"] = changes
    return found


def write_designed(study: Study, record: DesignRecord) -> Path:
    """Write <name>-designed.yaml beside the study's file; what it trains goes into a folder of that name."""
    name = f"{study.path.stem}-designed"
    path = study.path.with_name(f"{name}.yaml")
    data = {**load_yaml(study.path), "branches": {n: dict(changes) for n, changes in record.branches.items()}}
    data["output"] = name
    head = f"# Written by `trajsoup design {study.path.name}`: see records/design.json for why these branches.\n"
    text = head + yaml.safe_dump(data, sort_keys=False)
    if path.is_file() and read_small(path) != text.encode():
        raise StudyError(f"{path} exists and has other branches than were picked now: move it away, then design again")
    write_atomic(path, text)
    try:
        load_study(path)
    except StudyError as error:
        raise StudyError(
            f"{path} was written and does not work as it is ({error}): something else in {study.path} names a branch that "
            "was not picked; correct it by hand"
        ) from error
    return path


def _written(value: Any) -> Any:
    match value:
        case Schedule(shape=Shape.CONSTANT):
            return Shape.CONSTANT.value
        case Schedule():
            return {"shape": value.shape.value, "decay_to": value.decay_to, "decay_share": value.decay_share}
        case Warmup(tokens=None):
            return value.share
        case Warmup():
            return value.tokens
        case StrEnum():
            return value.value
        case tuple():
            pairs = list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return dict(pairs) if pairs and isinstance(pairs[0], tuple) else pairs
        case _:
            return value
