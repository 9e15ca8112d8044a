"""lm-eval as the suite of real models: any installed task or local YAML, on a model whose weights are swapped in place.

    names -> leaf tasks -> data at hand? -> tasks built once -> evaluate(live model) -> TaskResult per name, per item

A task that would fetch its data from the network is refused before anything runs, together with all others like it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from trajsoup.core.scores import TaskResult
from trajsoup.errors import ScoreError, install
from trajsoup.store.digest import sha256_file
from trajsoup.store.regular import read_words

YAML_SUFFIXES = (".yaml", ".yml")
_INCLUDE = re.compile(r"^include:\s*[\"']?([^\s\"']+)", re.MULTILINE)
Array = np.ndarray[Any, np.dtype[np.float64]]
LOCAL_BUILDERS = frozenset(
    {"json", "csv", "parquet", "text", "arrow", "xml"}
)  # of the datasets library: read data_files


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessSettings:
    """What to run. Whatever lm-eval's evaluator takes may be given as an argument."""

    tasks: tuple[str, ...]  # names of tasks, groups or tags; or paths of YAML files
    categories: Mapping[str, str] = field(default_factory=dict[str, str])  # by task as named above
    include_path: Path | None = None  # a folder of further YAML files
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])  # by task: "acc_norm", or "exact_match,strict"
    model_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])  # to lm-eval's HFLM: batch_size, ...
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])  # to simple_evaluate: num_fewshot, limit, ...
    allow_network: bool = False  # let the datasets library download what is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTasks:
    """The tasks that settings name, all of them present with their data."""

    settings: HarnessSettings
    manager: Any
    names: tuple[str, ...]  # as lm-eval knows them, in the order of the settings
    leaves: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]]  # by name: leaf tasks and their configurations

    @property
    def digest(self) -> str:
        """What the results depend on: the settings, lm-eval's version, the content of local task and data files."""
        given = self.settings
        files = [*_task_files(given), *_data_files(cfg for found in self.leaves.values() for _, cfg in found)]
        contents = [sha256_file(file) for file in dict.fromkeys(files)]
        options = [sorted(m.items()) for m in (given.model_arguments, given.arguments)]
        metrics = sorted((_short(task), metric) for task, metric in given.metrics.items())
        parts = [version("lm-eval"), [_short(task) for task in given.tasks], self.names, contents, metrics, options]
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def find_tasks(settings: HarnessSettings) -> FoundTasks:
    """Find every named task, and refuse at once all whose data would have to be fetched. No model is needed."""
    _import()
    if not settings.tasks:
        raise ScoreError("no lm-eval task is named: name at least one")
    manager, names = _manager(settings)
    leaves = {name: tuple(_leaves(manager.task_index, name)) for name in names}
    if not settings.allow_network:
        require_local({leaf: cfg for found in leaves.values() for leaf, cfg in found})
    return FoundTasks(settings=settings, manager=manager, names=names, leaves=leaves)


class Harness:
    """lm-eval around one live model. Build it once; call `score` whenever the weights have changed."""

    def __init__(self, model: Any, *, tokenizer: Path, tasks: FoundTasks) -> None:
        lm_eval = _import()
        settings = tasks.settings
        self.settings, self._manager, self.names = settings, tasks.manager, tasks.names
        with _offline(not settings.allow_network), _quiet():
            try:
                self._tasks = self._manager.load(list(self.names))["tasks"]
            except Exception as error:  # the library raises whatever its loaders raise
                raise ScoreError(f"lm-eval cannot load {', '.join(self.names)}: {error}") from error
            self._leaves = {name: [leaf for leaf, _ in found] for name, found in tasks.leaves.items()}
            self._lm = lm_eval.models.huggingface.HFLM(
                pretrained=model, tokenizer=str(tokenizer), **{"batch_size": 16, **settings.model_arguments}
            )

    def score(self) -> tuple[TaskResult, ...]:
        """Evaluate the model as it is now: one result per task as named, with all items of its leaf tasks."""
        lm_eval = _import()
        with _offline(not self.settings.allow_network), _quiet():
            try:
                output = lm_eval.evaluator.simple_evaluate(
                    model=self._lm,
                    tasks=list(self._tasks.values()),
                    task_manager=self._manager,  # without it, each call indexes every installed task anew
                    log_samples=True,
                    bootstrap_iters=0,
                    **self.settings.arguments,
                )
            except (ValueError, TypeError, KeyError) as error:
                raise ScoreError(f"lm-eval refused the evaluation: {error}") from error
        assert output is not None  # only ranks other than 0 of a distributed run get None
        return self._results(lambda leaf, given: self._items(output, leaf, given))

    def nothing(self) -> tuple[TaskResult, ...]:
        """What a model scores that holds NaN: NaN for every item, so that it can be compared like any other."""
        return self._results(lambda leaf, given: np.full(self._count(leaf), np.nan))

    def _results(self, items: Callable[[str, str], Array]) -> tuple[TaskResult, ...]:
        return tuple(
            TaskResult(
                name=given,
                category=self.settings.categories.get(given, "lm-eval"),
                correct=np.concatenate([items(leaf, given) for leaf in self._leaves[name]]),
            )
            for given, name in zip(self.settings.tasks, self.names, strict=True)
        )

    def _count(self, leaf: str) -> int:
        """The items of a task that lm-eval would run under the arguments given."""
        chosen = (self.settings.arguments.get("samples") or {}).get(leaf)
        if chosen is not None:
            return len(chosen)
        count, limit = len(self._tasks[leaf].eval_docs), self.settings.arguments.get("limit")
        if limit is None:
            return count
        return min(count, math.ceil(count * limit) if limit < 1 else int(limit))

    def _items(self, output: Mapping[str, Any], leaf: str, given: str) -> Array:
        samples = output["samples"][leaf]
        if not samples:
            raise ScoreError(f"lm-eval task {leaf!r} has no item: raise the limit")
        metric, _, chosen = self.settings.metrics.get(given, samples[0]["metrics"][0]).partition(",")
        if metric not in samples[0]["metrics"]:
            raise ScoreError(
                f"lm-eval task {leaf!r} has no metric {metric!r} (it has: {', '.join(samples[0]['metrics'])}): "
                "name one of these in metrics"
            )
        if output["higher_is_better"][leaf].get(metric) is False:
            raise ScoreError(
                f"the metric {metric!r} of lm-eval task {leaf!r} is better when lower, so it is no accuracy: "
                "name another in metrics"
            )
        filtered = chosen or samples[0]["filter"]
        wanted = sorted((s for s in samples if s["filter"] == filtered), key=lambda s: s["doc_id"])
        try:
            return np.array([float(sample[metric]) for sample in wanted])
        except (TypeError, ValueError) as error:
            raise ScoreError(
                f"the metric {metric!r} of lm-eval task {leaf!r} is no number per item: name another in metrics"
            ) from error


def require_local(leaves: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse tasks whose data would have to be fetched, all at once."""
    wanting = {name: cfg for name, cfg in leaves.items() if not _is_local(cfg)}
    if wanting:
        listed = ", ".join(
            f"{name} ({cfg.get('dataset_path', 'its own loader')})" for name, cfg in list(wanting.items())[:8]
        )
        more = f" and {len(wanting) - 8} more" if len(wanting) > 8 else ""
        raise ScoreError(
            f"{len(wanting)} lm-eval tasks want the network for their data: {listed}{more}. Download the data first, "
            "point their YAML at local files, leave them out, or allow it with allow_network"
        )


def _is_local(cfg: Mapping[str, Any]) -> bool:
    if "class" in cfg:
        return False  # a task in Python may fetch anything
    path = cfg.get("dataset_path")
    if path is None or Path(str(path)).expanduser().exists():
        return True
    if path in LOCAL_BUILDERS:
        files = (cfg.get("dataset_kwargs") or {}).get("data_files") or {}
        return all(_is_local_file(file) for file in _flat(files))
    from datasets import config

    return (Path(config.HF_DATASETS_CACHE) / str(path).replace("/", "___").lower()).is_dir() or (
        Path(config.HF_DATASETS_CACHE) / str(path).replace("/", "___")
    ).is_dir()


def _task_files(settings: HarnessSettings) -> Iterator[Path]:
    """The named YAML files, what they include, and the YAML and Python files beside them, whose functions they call."""
    named = [Path(task).resolve() for task in settings.tasks if task.endswith(YAML_SUFFIXES)]
    folders = [file.parent for file in named] + ([settings.include_path] if settings.include_path else [])
    waiting = [
        file for folder in folders for file in sorted(folder.rglob("*")) if file.suffix in (*YAML_SUFFIXES, ".py")
    ]
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop(0).resolve()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        yield file
        if file.suffix in YAML_SUFFIXES:
            included = _INCLUDE.findall(read_words(file))
            waiting += [file.parent / name for name in included]


def _data_files(configurations: Iterable[Mapping[str, Any]]) -> Iterator[Path]:
    for cfg in configurations:
        for name in _flat((cfg.get("dataset_kwargs") or {}).get("data_files") or ()):
            if "://" not in name:
                path = Path(name).expanduser()
                found = sorted(Path().glob(name)) if not path.is_absolute() and not path.exists() else [path]
                yield from (file for file in found if file.is_file())


def _short(task: str) -> str:
    """A task's name without the folders of its file: a study that moved is the same study."""
    return Path(task).name if task.endswith(YAML_SUFFIXES) else task


def _is_local_file(file: str) -> bool:
    if "://" in file:
        return False
    if not any(character in file for character in "*?[") and not Path(file).expanduser().exists():
        raise ScoreError(
            f"an lm-eval task reads {file}, which does not exist from here: correct data_files in its YAML"
        )
    return True


def _flat(files: Any) -> Iterator[str]:
    if isinstance(files, str):
        yield files
    elif isinstance(files, Mapping):
        for value in files.values():
            yield from _flat(value)
    else:
        for value in files:
            yield from _flat(value)


def _manager(settings: HarnessSettings) -> tuple[Any, tuple[str, ...]]:
    """A task manager that knows every named task, and the names under which it does."""
    from lm_eval.tasks import TaskManager

    files = [Path(task).resolve() for task in settings.tasks if task.endswith(YAML_SUFFIXES)]
    for file in files:
        if not file.is_file():
            raise ScoreError(f"there is no lm-eval task file {file}: check the path")
    folders: list[str | Path] = [
        *dict.fromkeys(file.parent for file in files),
        *([settings.include_path] if settings.include_path else []),
    ]
    with _quiet():
        manager = TaskManager(include_path=folders or None, include_defaults=len(files) < len(settings.tasks))
    by_file = {entry.yaml_path.resolve(): name for name, entry in manager.task_index.items() if entry.yaml_path}
    names: list[str] = []
    for task in settings.tasks:
        name = by_file.get(Path(task).resolve()) if task.endswith(YAML_SUFFIXES) else task
        if name is None:
            raise ScoreError(f"{task} is not an lm-eval task: it needs a `task:` or `group:` entry")
        if name not in manager.task_index:
            import difflib

            near = difflib.get_close_matches(name, manager.all_tasks, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`lm-eval ls tasks` lists those it has"
            raise ScoreError(f"lm-eval has no task {name!r}: {hint}")
        names.append(name)
    return manager, tuple(names)


def _leaves(index: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tasks below a group or tag, each with its configuration."""
    entry = index[name]
    match entry.kind.name:
        case "TAG":
            for child in sorted(entry.tags):
                yield from _leaves(index, child)
        case "GROUP":
            for child in entry.cfg["task"]:
                if isinstance(child, str):
                    yield from _leaves(index, child)
                else:
                    yield child["task"], {**getattr(index.get(child["task"]), "cfg", {}), **child}
        case _:
            yield name, entry.cfg


def _import() -> Any:
    try:
        import lm_eval
        import lm_eval.evaluator
        import lm_eval.models.huggingface
    except ImportError as error:
        raise ScoreError(f"lm-eval is not installed: {install('eval')}") from error
    return lm_eval


@contextlib.contextmanager
def _offline(offline: bool) -> Iterator[None]:
    """Keep the datasets library from asking the hub, which it does even for data it has."""
    from datasets import config

    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = offline or before
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval logs and draws bars for every pass; a sweep has hundreds."""
    import datasets
    import lm_eval.evaluator

    found = lm_eval.evaluator.get_git_commit_hash
    lm_eval.evaluator.get_git_commit_hash = lambda: None  # it asks git, whose complaint no redirection here would hide
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        lm_eval.evaluator.get_git_commit_hash = found
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()


def chosen_tasks(names: Sequence[str]) -> dict[str, str]:
    """Task names and their categories, presets of the paper expanded."""
    from trajsoup.lm.paper_suites import PRESETS, preset_tasks

    found: dict[str, str] = {}
    for name in names:
        found |= preset_tasks(name) if name in PRESETS else {name: "lm-eval"}
    return found
