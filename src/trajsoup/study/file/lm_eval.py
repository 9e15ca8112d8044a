"""The fields of a study file that name lm-eval tasks, and the settings they mean. Reading them loads no lm-eval.

evaluate: {lm_eval: {choose: [...], report: [...]}} -> LmEval -> HarnessSettings of either split
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajsoup.errors import StudyError
from trajsoup.store.yaml_file import check_keys

if TYPE_CHECKING:
    from trajsoup.lm.harness import HarnessSettings

LM_EVAL_FIELDS = {
    "choose": "Tasks that rank and choose: names of installed tasks, groups or tags, or YAML files. Default none.",
    "report": "Tasks that are only reported, none of them in `choose`. The presets `paper-41` and `paper-16` name the "
    "paper's configurations; those that lm-eval does not have are left out, and the main table says which. Default none.",
    "include_path": "A folder of further YAML files.",
    "metrics": "By task: the metric to use where a task has several, `acc_norm` or `exact_match,strict-match`.",
    "model_arguments": "To lm-eval's model: `batch_size`, `max_length`, ...",
    "arguments": "To lm-eval's evaluator: `num_fewshot`, `limit`, ...",
    "allow_network": "Let tasks download their data. Default false: such tasks are refused at the start.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEval:
    """lm-eval tasks as the study file names them; paths are relative to it."""

    choose: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    include_path: str | None = None
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    model_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    allow_network: bool = False


def parse_lm_eval(data: Any, *, where: str) -> LmEval:
    """Read `lm_eval`."""
    check_keys(data, tuple(LM_EVAL_FIELDS), where=where)
    names = {part: _names(data.get(part) or (), f"{where}: {part}") for part in ("choose", "report")}
    if not any(names.values()):
        raise StudyError(f"{where}: names no task: list some in `choose` (may choose models) or `report` (may not)")
    mappings: dict[str, Any] = {name: data.get(name) or {} for name in ("metrics", "model_arguments", "arguments")}
    for name, value in mappings.items():
        if not isinstance(value, dict):
            raise StudyError(f"{where}: {name} is {value!r}: write `name: value` pairs")
    network = data.get("allow_network", False)
    if not isinstance(network, bool):
        raise StudyError(f"{where}: allow_network is {network!r}: use true or false")
    folder = data.get("include_path")
    return LmEval(**names, **mappings, include_path=None if folder is None else str(folder), allow_network=network)


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


def _names(value: Any, where: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        raise StudyError(f"{where} is {value!r}: list names of tasks")
    return tuple(listed)
