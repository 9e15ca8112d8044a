"""A study of runs that exist already: which branches, which checkpoints, how they scored.

`scan` writes it, people edit it, every later stage reads it. Paths in the file are relative to the file.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from trajsoup.core.pool import Candidate, Pool, Unit
from trajsoup.core.screening import TOLERANCE
from trajsoup.errors import StudyError
from trajsoup.store.fields import NO_RESULTS, At, Name, PlaceBeside, declared, place_below, read
from trajsoup.store.publish import write_atomic
from trajsoup.store.remote import Place, RemotePath, absolute, place
from trajsoup.store.runs import Run, Saved, scan_run
from trajsoup.store.trainer_states import TrainerStates
from trajsoup.store.yaml_file import load_yaml

FOR_RUN = (
    "corpus",
    "evaluate",
    "sweeps",
    "primary",
    "sft",
    "connectivity",
    "publish",
)  # what `trajsoup run` needs to score runs: study/file
_PLAIN = re.compile(r"[\w./-]+")
_HEAD = """\
# Written by `trajsoup scan`. Edit it freely; paths are relative to this file.
# Empty scores may be filled in by hand or by a metrics.csv in the run's folder (then scan again).
"""


class Kind(StrEnum):
    """What a study file is about: `kind` in it."""

    TRAIN = "train"  # branches to train: study/file
    RUNS = "runs"  # runs that exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Which branches the screen admits."""

    baseline: Annotated[
        Name | None, "Of the screen. Default: the branch that changes nothing; of existing runs the one of median loss."
    ] = None
    tolerance: Annotated[float, "Of the screen: the largest relative gap of training loss."] = TOLERANCE
    force: Annotated[tuple[Name, ...], "Branches to admit whatever the screen says; they stay marked."] = ()

    def require_among(self, branches: Collection[str], *, where: str) -> None:
        """Refuse a branch that the study does not have."""
        for name in (*self.force, *(() if self.baseline is None else (self.baseline,))):
            if name not in branches:
                raise StudyError(f"{where}: there is no branch {name!r}: the branches are {', '.join(branches)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One run as the file lists it."""

    path: Annotated[PlaceBeside, "Folder of the run, or a URL. Default: the folder of the file."]
    checkpoints: Annotated[tuple[Saved, ...], "Its checkpoints in the order they were saved; see below."] = ()

    @staticmethod
    def spelled_out(value: Any) -> Any:
        """The path may be left out."""
        return {"path": "."} | value if isinstance(value, dict) else value

    def __post_init__(self) -> None:
        if not self.checkpoints:
            raise StudyError("lists no checkpoints: scan the runs again")


@dataclass(frozen=True, kw_only=True)
class RunsFile:
    """A file of runs that exist, as `scan` writes it."""

    kind: Annotated[Literal["runs"], "Runs that exist. Left out: known by the checkpoints of the branches."] = "runs"
    fork_point: Annotated[PlaceBeside | None, "What all runs started from: a folder, a file or a URL."] = None
    screen: Annotated[Screen, "Which branches are admitted; see below."] = Screen()
    branches: Annotated[Mapping[str, Listed], "Name -> `path` and `checkpoints` of each run; see below."] = field(
        default_factory=dict[str, Listed]
    )

    def __post_init__(self) -> None:
        if not self.branches:
            raise StudyError("has no branches: write it with `trajsoup scan RUN_DIR... -o FILE`")
        self.screen.require_among(self.branches, where="screen")

    @functools.cached_property
    def runs(self) -> Branches:
        """What the file says, with every path in full."""
        return Branches(
            branches=tuple(
                Branch(
                    name=name,
                    path=listed.path,
                    checkpoints=tuple(replace(s, path=place_below(listed.path, s.path)) for s in listed.checkpoints),
                )
                for name, listed in self.branches.items()
            ),
            fork_point=self.fork_point,
            baseline=self.screen.baseline,
            tolerance=self.screen.tolerance,
            force=self.screen.force,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One run under its name in the study."""

    name: str
    path: Place
    checkpoints: tuple[Saved, ...]


@dataclass(frozen=True, kw_only=True)
class Branches:
    """All runs that share a fork point."""

    branches: tuple[Branch, ...]
    baseline: str | None = None  # what the screen compares with; None: the branch of median training loss
    fork_point: Place | None = None
    tolerance: float = TOLERANCE
    force: tuple[str, ...] = ()  # branches to admit whatever the screen says
    notes: Annotated[tuple[str, ...], NO_RESULTS] = ()
    hints: Annotated[tuple[str, ...], NO_RESULTS] = ()  # what a scan says once, and no later command again
    unnamed: Annotated[tuple[str, ...], NO_RESULTS] = ()  # runs with several validation losses, none of them named

    @functools.cached_property
    def unit(self) -> Unit:
        """What positions are counted in: tokens, if every checkpoint has them."""
        known = all(s.tokens is not None for b in self.branches for s in b.checkpoints)
        return Unit.TOKENS if known else Unit.STEPS

    def position(self, saved: Saved) -> int:
        """Where a checkpoint lies on its branch, in the study's unit."""
        return (saved.tokens if self.unit is Unit.TOKENS else saved.step) or 0

    def pools(self) -> tuple[Pool, ...]:
        """The candidate pools, keyed by absolute path."""
        return tuple(
            Pool(
                branch=b.name,
                candidates=tuple(
                    self._candidate(b.name, s, before)
                    for before, s in zip((None, *b.checkpoints), b.checkpoints, strict=False)
                ),
            )
            for b in self.branches
        )

    def _candidate(self, branch: str, saved: Saved, before: Saved | None) -> Candidate:
        position = self.position(saved)
        is_smoothed = saved.losses_logged is not None and saved.losses_logged > 1
        return Candidate(
            key=absolute(saved.path),
            branch=branch,
            tokens=position,
            train_loss=saved.train_loss,
            train_error=saved.train_error,
            window_tokens=position - (0 if before is None else self.position(before)) if is_smoothed else None,
            val_loss=saved.val_loss,
            accuracy=saved.accuracy,
            unit=self.unit,
        )


def scan_branches(
    paths: Sequence[Place | str],
    *,
    fork_point: Place | str | None = None,
    tokens_per_step: int | None = None,
    metric: str | None = None,
    states: TrainerStates | None = None,
) -> Branches:
    """Scan run folders into a study. No run is named as the baseline: their order means nothing.

    `states` remember what the logs of a Trainer said, for who scans again and again.

    >>> scan_branches(["runs/a", "s3://bucket/runs/b"]).branches  # doctest: +SKIP
    """
    fork_point = None if fork_point is None else place(fork_point)
    seen: dict[Place, Place] = {}
    for path in map(place, paths):
        if path.resolve() in seen:
            raise StudyError(f"{path} is given twice: name each run once")
        seen[path.resolve()] = path
    runs = [scan_run(path, tokens_per_step=tokens_per_step, metric=metric, states=states) for path in paths]
    names = _names([run.path for run in runs])
    notes = [note for run in runs for note in run.notes]
    unnamed = tuple(said for run in runs for said in run.unnamed)
    branches: list[Branch] = []
    for name, run in zip(names, runs, strict=True):
        first, *later = run.checkpoints
        kept = run.checkpoints
        if first.step == 0 and later:
            kept = tuple(later)
            fork_point = fork_point or first.path
            notes.append(f"{first.path} is at step 0: taken as the fork point, not as a candidate")
        branches.append(Branch(name=name, path=run.path, checkpoints=kept))
    study = Branches(branches=tuple(branches), fork_point=fork_point, notes=tuple(notes), unnamed=unnamed)
    return _with_notes(study, runs)


def read_branches(
    inputs: Sequence[Place | str],
    *,
    fork_point: Place | str | None = None,
    tokens_per_step: int | None = None,
    metric: str | None = None,
) -> Branches:
    """What a command was given: one study file, or run folders to scan."""
    if len(inputs) == 1 and place(inputs[0]).suffix in (".yaml", ".yml"):
        if tokens_per_step is not None or metric is not None:
            raise StudyError(
                f"{'--tokens-per-step' if metric is None else '--metric'} is for scanning runs, and {inputs[0]} lists its "
                "checkpoints with their positions and scores: scan the runs again with it, or edit the file"
            )
        study = load_branches(inputs[0])
        return replace(study, fork_point=study.fork_point if fork_point is None else place(fork_point))
    return scan_branches(inputs, fork_point=fork_point, tokens_per_step=tokens_per_step, metric=metric)


def load_branches(path: Place | str) -> Branches:
    """Read a study file that `scan` wrote.

    >>> load_branches("study.yaml").pools()  # doctest: +SKIP
    """
    path = _local_file(path)
    data = load_yaml(path)
    if kind_of(data, where=path) is Kind.TRAIN:
        raise StudyError(
            f"{path} is a study to train, not one of finished runs: `trajsoup run {path}` trains, scores and merges it; to "
            f"merge its branches by hand, name their folders ({path.parent / 'branches'}/...)"
        )
    own = {key: value for key, value in data.items() if key not in FOR_RUN}
    return read(RunsFile, own, where=At(path, path.parent.resolve())).runs


def kind_of(data: Mapping[str, Any], *, where: object) -> Kind | None:
    """What a study file is about, by its `kind` or by what it holds; None where it holds neither."""
    if (named := data.get("kind")) is not None:
        if named not in tuple(Kind):
            raise StudyError(f"{where}: kind is {named!r}: use {' or '.join(Kind)}")
        return Kind(named)
    if "horizon" in data:
        return Kind.TRAIN
    entries = data.get("branches")
    listed = isinstance(entries, dict) and any(isinstance(e, dict) and "checkpoints" in e for e in entries.values())
    return Kind.RUNS if listed else None


def soups_folder(file: Path) -> Path:
    """Where a study of existing runs writes: beside its file, not among the runs."""
    return file.with_name(f"{file.stem}-soups")


def save_branches(study: Branches, path: Place | str) -> None:
    """Write the study file, whole or not at all; a checkpoint is one line.

    >>> save_branches(scan_branches(["runs/a", "runs/b"]), "study.yaml")  # doctest: +SKIP
    """
    path = _local_file(path)
    base = path.parent.resolve()

    def listed(saved: Saved, run: Place) -> dict[str, Any]:
        values = {f.key: getattr(saved, f.name) for f in declared(Saved)} | {"path": _relative(saved.path, run)}
        return {key: value for key, value in values.items() if value is not None}

    data = {
        "kind": Kind.RUNS.value,
        "fork_point": None if study.fork_point is None else _relative(study.fork_point, base),
        "screen": {
            **({} if study.baseline is None else {"baseline": study.baseline}),
            "tolerance": study.tolerance,
            "force": list(study.force),
        },
        "branches": {
            b.name: {
                "path": _relative(b.path, base),
                "checkpoints": [listed(s, place(absolute(b.path))) for s in b.checkpoints],
            }
            for b in study.branches
        },
    }
    flow = {"default_flow_style": None, "width": 2**20}  # what holds only values is one line
    write_atomic(path, _HEAD + yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **flow))


class _Dumper(yaml.SafeDumper):
    """No name breaks the line that it is on."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if _PLAIN.fullmatch(text) else '"'
    ),
)


def _with_notes(study: Branches, runs: Sequence[Run]) -> Branches:
    """Say what could not be found, and how to supply it."""
    every = [s for b in study.branches for s in b.checkpoints]
    notes = list(study.notes)
    hints: list[str] = []
    if study.unit is not Unit.TOKENS:
        if any(s.step is None for s in every) and len(every) > len(runs):
            raise StudyError(
                "some checkpoints have neither tokens nor a step: give both runs a metrics.csv with tokens"
            )
        hints.append(
            "tokens seen are not recorded, so positions are steps (comparable only at equal batch size): pass "
            "--tokens-per-step, or a metrics.csv with a tokens column, or train with include_num_input_tokens_seen"
        )
    if missing := sum(s.train_loss is None for s in every):
        notes.append(
            f"{missing} of {len(every)} checkpoints have no training loss (needed by the screen): add a train_loss column to "
            "metrics.csv"
        )
    if missing := sum(s.val_loss is None for s in every):
        hints.append(
            f"{missing} of {len(every)} checkpoints have no validation loss (needed to rank by loss): add a val_loss "
            "column to metrics.csv, or let `merge --validation FILE` score them"
        )
    return replace(study, notes=tuple(notes), hints=tuple(hints))


def _names(paths: Iterable[Place]) -> list[str]:
    """Folder names, with as much of the path before them as it takes to tell them apart."""
    parts = [absolute(path).split("/") for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise StudyError("the same run is given twice: name each run once")


def _relative(path: Place, base: Place) -> str:
    if isinstance(path, RemotePath) or isinstance(base, RemotePath):
        return absolute(path).removeprefix(f"{base}/")
    return os.path.relpath(os.path.abspath(path), base)  # a link stays a link: its target may have another name


def _local_file(path: Place | str) -> Path:
    path = place(path)
    if isinstance(path, RemotePath):
        raise StudyError(f"{path}: a study file lies on this machine; copy it here (its checkpoints may stay there)")
    return path
