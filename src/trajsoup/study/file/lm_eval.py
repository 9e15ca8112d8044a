"""The fields of a study file that name lm-eval tasks, and the settings they mean. Reading them loads no lm-eval.

evaluate: {lm_eval: {choose: [...], report: [...]}} -> LmEval -> HarnessSettings of either split
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trajsoup.errors import StudyError
from trajsoup.store.fields import Name

if TYPE_CHECKING:
    from trajsoup.lm.harness import HarnessSettings

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEval:
    """lm-eval tasks as the study file names them; paths are relative to it."""

    choose: Annotated[
        Names, "Tasks that rank and choose: names of installed tasks, groups or tags, or YAML files."
    ] = ()
    report: Annotated[
        Names,
        "Tasks that are only reported, none of them in `choose`. The presets `paper-41` and `paper-16` name the "
        "paper's configurations; those that lm-eval does not have are left out, and the main table says which.",
    ] = ()
    include_path: Annotated[Name | None, "A folder of further YAML files."] = None
    metrics: Annotated[Mapping[str, str], "By task: which of several, `acc_norm` or `exact_match,strict-match`."] = (
        field(default_factory=dict[str, str])
    )
    model_arguments: Annotated[Mapping[str, Any], "To lm-eval's model: `batch_size`, `max_length`, ..."] = field(
        default_factory=dict[str, Any]
    )
    arguments: Annotated[Mapping[str, Any], "To lm-eval's evaluator: `num_fewshot`, `limit`, ..."] = field(
        default_factory=dict[str, Any]
    )
    allow_network: Annotated[bool, "Let tasks download their data. Without it they are refused at the start."] = False

    def __post_init__(self) -> None:
        if not self.choose and not self.report:
            raise StudyError("names no task: list some in `choose` (may choose models) or `report` (may not)")


def harness_settings(named: LmEval, *, base: Path) -> tuple[HarnessSettings | None, HarnessSettings | None]:
    """The settings of what chooses and of what is reported; `base` is the study file's folder."""
    return _settings(named, named.choose, base), _settings(named, named.report, base)


def require_tasks(named: LmEval, *, base: Path) -> None:
    """Refuse tasks that cannot run here, and any that would both choose and report, also as part of a group."""
    from trajsoup.lm.harness import find_tasks

    leaves = [
        set() if settings is None else {leaf for found in find_tasks(settings).leaves.values() for leaf, _ in found}
        for settings in harness_settings(named, base=base)
    ]
    if both := sorted(leaves[0] & leaves[1]):
        raise StudyError(
            f"lm-eval task {', '.join(both[:5])} is below both `choose` and `report`: what chooses a model flatters it; "
            "name different tasks"
        )


def left_out(named: LmEval | None) -> tuple[str, ...]:
    """A note for each preset on what lm-eval does not have of it."""
    from trajsoup.lm.paper_suites import PRESETS, absent_configurations

    found: list[str] = []
    for preset in dict.fromkeys((*named.choose, *named.report) if named is not None else ()):
        if preset in PRESETS and (absent := absent_configurations(preset)):
            listed = ", ".join(c.name for c in absent)
            found.append(f"lm-eval has no task for {len(absent)} configurations of {preset}, left out: {listed}")
    return tuple(found)


def _settings(named: LmEval, tasks: Sequence[str], base: Path) -> HarnessSettings | None:
    if not tasks:
        return None
    from trajsoup.lm.harness import YAML_SUFFIXES, HarnessSettings, chosen_tasks

    def placed(task: str) -> str:
        return str(base / task) if task.endswith(YAML_SUFFIXES) else task

    categories = {placed(task): category for task, category in chosen_tasks(tasks).items()}
    return HarnessSettings(
        tasks=tuple(categories),
        categories=categories,
        include_path=None if named.include_path is None else base / named.include_path,
        metrics={placed(task): metric for task, metric in named.metrics.items()},
        model_arguments=named.model_arguments,
        arguments=named.arguments,
        allow_network=named.allow_network,
    )
