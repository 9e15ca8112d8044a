"""A study of runs that exist already: which branches, which checkpoints, how they scored.

`scan` writes it, people edit it, every later stage reads it. Paths in the file are relative to the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from trajsoup.core.pool import Candidate, Pool, Unit
from trajsoup.core.screening import TOLERANCE
from trajsoup.errors import StudyError
from trajsoup.store.publish import write_atomic
from trajsoup.store.remote import Place, RemotePath, absolute, is_url, place
from trajsoup.store.runs import Run, Saved, scan_run
from trajsoup.store.yaml_file import check_keys, load_yaml

FOR_RUN = (
    "corpus",
    "evaluate",
    "sweeps",
    "sft",
    "publish",
)  # what `trajsoup run` needs to score runs; read by setup.py
_PLAIN = re.compile(r"[\w./-]+")
_HEAD = """\
# Written by `trajsoup scan`. Edit it freely; paths are relative to this file.
# Empty scores may be filled in by hand or by a metrics.csv in the run's folder (then scan again).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One run under its name in the study."""

    name: str
    path: Place
    checkpoints: tuple[Saved, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """All runs that share a fork point."""

    branches: tuple[Branch, ...]
    baseline: str  # name of the branch that the screen compares with
    fork_point: Place | None = None
    tolerance: float = TOLERANCE
    force: tuple[str, ...] = ()  # branches to admit whatever the screen says
    notes: tuple[str, ...] = ()

    @property
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
            window_tokens=position - (0 if before is None else self.position(before)) if is_smoothed else None,
            val_loss=saved.val_loss,
            accuracy=saved.accuracy,
            unit=self.unit,
        )


def scan_branches(
    paths: Sequence[Place | str], *, fork_point: Place | str | None = None, tokens_per_step: int | None = None
) -> Branches:
    """Scan run folders into a study. The first run is the baseline."""
    fork_point = None if fork_point is None else place(fork_point)
    seen: dict[Place, Place] = {}
    for path in map(place, paths):
        if path.resolve() in seen:
            raise StudyError(f"{path} is given twice: name each run once")
        seen[path.resolve()] = path
    runs = [scan_run(path, tokens_per_step=tokens_per_step) for path in paths]
    names = _names([run.path for run in runs])
    notes = [note for run in runs for note in run.notes]
    branches: list[Branch] = []
    for name, run in zip(names, runs, strict=True):
        first, *later = run.checkpoints
        kept = run.checkpoints
        if first.step == 0 and later:
            kept = tuple(later)
            fork_point = fork_point or first.path
            notes.append(f"{first.path} is at step 0: taken as the fork point, not as a candidate")
        branches.append(Branch(name=name, path=run.path, checkpoints=kept))
    study = Branches(branches=tuple(branches), fork_point=fork_point, baseline=names[0], notes=tuple(notes))
    return _with_notes(study, runs)


def read_branches(
    inputs: Sequence[Place | str], *, fork_point: Place | str | None = None, tokens_per_step: int | None = None
) -> Branches:
    """What a command was given: one study file, or run folders to scan."""
    if len(inputs) == 1 and place(inputs[0]).suffix in (".yaml", ".yml"):
        if tokens_per_step is not None:
            raise StudyError(
                f"--tokens-per-step is for scanning runs, and {inputs[0]} lists its checkpoints with their positions: scan "
                "the runs again with it, or edit the tokens in the file"
            )
        study = load_branches(inputs[0])
        return replace(study, fork_point=study.fork_point if fork_point is None else place(fork_point))
    return scan_branches(inputs, fork_point=fork_point, tokens_per_step=tokens_per_step)


def load_branches(path: Place | str) -> Branches:
    """Read a study file that `scan` wrote."""
    path = _local_file(path)
    data = load_yaml(path)
    if "horizon" in data:
        raise StudyError(
            f"{path} is a study to train, not one of finished runs: `trajsoup run {path}` trains, scores and merges it; to "
            f"merge its branches by hand, name their folders ({path.parent / 'branches'}/...)"
        )
    check_keys(data, ("fork_point", "screen", "branches", *FOR_RUN), where=str(path))
    base = path.parent.resolve()
    entries = data.get("branches")
    if not isinstance(entries, dict) or not entries:
        raise StudyError(f"{path}: has no branches: write it with `trajsoup scan RUN_DIR... -o {path}`")
    branches = tuple(_branch(str(name), entry, base, str(path)) for name, entry in entries.items())
    screen = data.get("screen") or {}
    check_keys(screen, ("baseline", "tolerance", "force"), where=f"{path}: screen")
    force = screen.get("force") or []
    if not isinstance(force, list) or not {str(name) for name in force} <= {str(name) for name in entries}:
        raise StudyError(f"{path}: screen: force is {force!r}: list branches out of {', '.join(map(str, entries))}")
    tolerance = _number(screen.get("tolerance"), f"{path}: screen: tolerance")
    return Branches(
        branches=branches,
        fork_point=_below(base, data["fork_point"]) if data.get("fork_point") else None,
        baseline=str(screen.get("baseline") or branches[0].name),
        tolerance=TOLERANCE if tolerance is None else tolerance,
        force=tuple(map(str, force)),
    )


def save_branches(study: Branches, path: Place | str) -> None:
    """Write the study file, whole or not at all."""
    path = _local_file(path)
    base = path.parent.resolve()
    lines = [_HEAD]
    fork = None if study.fork_point is None else _relative(study.fork_point, base)
    lines.append(_dump({"fork_point": fork}))
    screen = {"baseline": study.baseline, "tolerance": study.tolerance}
    lines.append(_dump({"screen": {**screen, "force": list(study.force)} if study.force else screen}))
    lines.append("branches:\n")
    for branch in study.branches:
        lines.append(
            f"  {_scalar(branch.name)}:\n    path: {_scalar(_relative(branch.path, base))}\n    checkpoints:\n"
        )
        for s in branch.checkpoints:
            values = {
                "path": _relative(s.path, place(absolute(branch.path))),
                "step": s.step,
                "tokens": s.tokens,
                "train_loss": s.train_loss,
                "losses_logged": s.losses_logged,
                "val_loss": s.val_loss,
                "accuracy": s.accuracy,
            }
            text = ", ".join(f"{key}: {_scalar(value)}" for key, value in values.items() if value is not None)
            lines.append(f"      - {{{text}}}\n")
    write_atomic(path, "".join(lines))


def _branch(name: str, entry: Any, base: Place, where: str) -> Branch:
    check_keys(entry, ("path", "checkpoints"), where=f"{where}: branch {name!r}")
    path = _below(base, entry.get("path", "."))
    listed = entry.get("checkpoints")
    if not isinstance(listed, list) or not listed:
        raise StudyError(f"{where}: branch {name!r} lists no checkpoints: scan the runs again")
    scores = ("train_loss", "val_loss", "accuracy")
    fields = ("path", "step", "tokens", "losses_logged", *scores)
    saved: list[Saved] = []
    for number, item in enumerate(listed, start=1):
        check_keys(item, fields, where=f"{where}: branch {name!r}, checkpoint {number}")
        here = f"{where}: branch {name!r}, checkpoint {number}"
        if "path" not in item:
            raise StudyError(f"{here}: has no path")
        numbers = {field: _number(item.get(field), f"{here}: {field}") for field in scores}
        saved.append(
            Saved(
                path=_below(path, item["path"]),
                step=_whole(item.get("step"), f"{here}: step"),
                tokens=_whole(item.get("tokens"), f"{here}: tokens"),
                losses_logged=_whole(item.get("losses_logged"), f"{here}: losses_logged"),
                **numbers,
            )
        )
    return Branch(name=name, path=path, checkpoints=tuple(saved))


def _number(value: Any, where: str) -> float | None:
    if value is None:
        return None
    try:
        if not isinstance(value, bool):
            return float(value)  # YAML reads 5e9 as text, people mean a number
    except (TypeError, ValueError, OverflowError):
        pass
    raise StudyError(f"{where} is {value!r}, which is not a number: mend it")


def _whole(value: Any, where: str) -> int | None:
    number = _number(value, where)
    if number is None:
        return None
    if not number.is_integer() or number < 0:
        raise StudyError(f"{where} is {value!r}, which is not a whole number: mend it")
    return value if isinstance(value, int) else int(number)


def _with_notes(study: Branches, runs: Sequence[Run]) -> Branches:
    """Say what could not be found, and how to supply it."""
    every = [s for b in study.branches for s in b.checkpoints]
    notes = list(study.notes)
    if study.unit is not Unit.TOKENS:
        if any(s.step is None for s in every) and len(every) > len(runs):
            raise StudyError(
                "some checkpoints have neither tokens nor a step: give both runs a metrics.csv with tokens"
            )
        notes.append(
            "tokens seen are not recorded, so positions are steps (comparable only at equal batch size): pass "
            "--tokens-per-step, or a metrics.csv with a tokens column, or train with include_num_input_tokens_seen"
        )
    for field, label, cure in (
        ("train_loss", "training loss", "needed by the screen"),
        ("val_loss", "validation loss", "needed to rank by loss"),
    ):
        missing = sum(getattr(s, field) is None for s in every)
        if missing:
            notes.append(
                f"{missing} of {len(every)} checkpoints have no {label} ({cure}): add a {field} column to metrics.csv"
            )
    return replace(study, notes=tuple(notes))


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


def _below(base: Place, text: Any) -> Place:
    if is_url(text):
        return place(str(text))
    return base / str(text) if isinstance(base, RemotePath) else Path(os.path.normpath(base / str(text)))


def _local_file(path: Place | str) -> Path:
    path = place(path)
    if isinstance(path, RemotePath):
        raise StudyError(f"{path}: a study file lies on this machine; copy it here (its checkpoints may stay there)")
    return path


def _dump(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def _scalar(value: Any) -> str:
    quoted = isinstance(value, str) and not _PLAIN.fullmatch(value)  # no name breaks the line or the {...} around it
    text = yaml.safe_dump(
        value, default_style='"' if quoted else None, default_flow_style=True, allow_unicode=True, width=2**20
    )
    return text.removesuffix("\n...\n").strip()
