"""Find the checkpoints of a training run and what is known of each: step, tokens, losses, accuracy.

run folder -> checkpoint paths -> steps from names -> scores from logs -> Run
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from trajsoup.core.quantity import Score, tokens_in_name
from trajsoup.core.screening import SPREAD, reach
from trajsoup.errors import ScanError
from trajsoup.store.checkpoint import is_checkpoint
from trajsoup.store.fields import parse_place
from trajsoup.store.formats import UNREAD, format_of, loose_files, unread
from trajsoup.store.formats.dcp import INSIDE
from trajsoup.store.formats.nanotron import FOLDER as WEIGHTS
from trajsoup.store.formats.nanotron import METADATA as NANOTRON
from trajsoup.store.formats.orbax import ITEMS
from trajsoup.store.metrics import Point, read_metrics, with_metric
from trajsoup.store.remote import Place, place
from trajsoup.store.trainer_logs import last_whole, read_logs, read_olmo_core
from trajsoup.store.trainer_states import TRAINER_STATE, TrainerStates

DEPTH = 3  # folders below a run that are searched
STATE = "resume-state-"  # folders of the builtin trainer that hold what it goes on from, not a model
_STEP = re.compile(r"(?:checkpoint|ckpt|step|steps|iter|iteration)[-_=]?(\d+)(?!\d)", re.IGNORECASE)
_TOKENS = re.compile(r"tokens?[-_=]?(\d+(?:\.\d+)?)([kKmMbBtT]?)(?![\dA-Za-z])")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # owner/name


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One checkpoint of a run. None means that nobody wrote it down."""

    path: Annotated[Place, parse_place, "Folder or file of the checkpoint, relative to the branch's path; or a URL."]
    step: Annotated[int | None, "Optimizer steps since the fork point."] = None
    tokens: Annotated[int | None, "Tokens since the fork point. Where all have them, positions are tokens."] = None
    train_loss: Annotated[Score | None, "Mean of the losses logged since the checkpoint before; for the screen."] = None
    losses_logged: Annotated[int | None, "How many losses that were."] = None
    train_error: Annotated[float | None, "Standard error of their mean, from the steps between them."] = None
    val_loss: Annotated[Score | None, "Validation loss."] = None
    accuracy: Annotated[Score | None, "Validation accuracy."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run folder and its checkpoints in the order they were saved."""

    path: Place
    checkpoints: tuple[Saved, ...]
    notes: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()  # that it has several validation losses, and nobody said which is meant


def scan_run(
    path: Place | str,
    *,
    tokens_per_step: int | None = None,
    metric: str | None = None,
    states: TrainerStates | None = None,
) -> Run:
    """Find every checkpoint of one run.

    `tokens_per_step` supplies the tokens where no log has them; `metric` names the validation loss where there are several.
    What `states` remember of the Trainer's logs is not read again.
    """
    path = place(path)
    found = _find(path)
    if not found:
        raise ScanError(f"{path} holds no checkpoint: {_why_none(path)}")
    notes = [f"{folder} holds no checkpoint: left out" for folder in _left_out(path, found)]
    if path in found and len(found) > 1:
        found.remove(path)  # the Trainer saves the last model once more at the top
        notes.append(f"{path} itself holds a model too; only its checkpoint folders are used")
    found, unfinished = _finished(found)
    notes += unfinished
    saved = [Saved(path=p, step=_step(p.stem if p.is_file() else p.name), tokens=_tokens(p.name)) for p in found]
    listed = _listed_points(path, found)
    points = [*_trainer_points(path, saved, states or TrainerStates()), *listed] or read_logs(path, found)
    points += [point for p in found if p.is_dir() and (point := read_olmo_core(p)) is not None]
    points = list(dict.fromkeys(points))
    points, several = with_metric(points, metric, run=path)
    notes += several
    index = _Index(points)
    saved = [_with_tokens(s, index.of(s), tokens_per_step) for s in saved]
    if len(saved) > 1:
        _require_positions(path, saved)
    saved.sort(key=lambda s: (s.step or 0, s.tokens or 0))
    _refuse_duplicates(path, saved)
    if path.is_dir():  # beside a lone file, most rows are its neighbours'
        notes += _unmatched(path, listed, saved)
    scored, moved = _with_nearest(_scored(saved, points), points)
    return Run(path=path, checkpoints=tuple(scored), notes=(*notes, *moved), unnamed=tuple(several))


def is_one_checkpoint(path: Place | str) -> bool:
    """Whether this is a checkpoint itself, and no folder of a run that holds some."""
    path = place(path)
    return _find(path) == [path]


def _find(path: Place) -> list[Place]:
    if path.is_file():
        return [] if format_of(path) is None else [path]
    if not path.is_dir():
        on_hub = f", or write hf://{path} if it is on the hub" if _HUB_ID.fullmatch(str(path)) else ""
        raise ScanError(f"there is no run at {path}: check the path{on_hub}")
    found = loose_files(path) or ([path] if is_checkpoint(path) else [])
    level: list[Place] = [path]
    for _ in range(DEPTH):
        level = [child for parent in level for child in sorted(parent.iterdir()) if _may_hold(child)]
        here = [folder for folder in level if is_checkpoint(folder)]
        found += here
        if here:
            break
    return found


def _left_out(run: Place, found: Sequence[Place]) -> list[Place]:
    """Folders beside the found ones that are named like checkpoints but hold no weights this tool reads."""
    places, known = sorted({p.parent for p in found if p.is_dir() and p != run}, key=str), {*found}
    return [
        c
        for place in places
        for c in sorted(place.iterdir())
        if c not in known and _may_hold(c) and _STEP.search(c.name)
    ]


def _may_hold(folder: Place) -> bool:
    if not folder.is_dir() or folder.name.startswith((".", STATE)) or folder.name in (*INSIDE, *ITEMS):
        return False
    if folder.name == WEIGHTS and (folder.parent / NANOTRON).is_file():
        return False
    # what DeepSpeed keeps beside the model that the Trainer saved
    beside = folder.name.startswith("global_step") and is_checkpoint(folder.parent)
    return not beside or len([*folder.parent.glob("global_step*")]) > 1


def _finished(found: Sequence[Place]) -> tuple[list[Place], list[str]]:
    """The checkpoints that their trainer has finished, where it says so, and a note of each other."""
    lasts = {folder: last_whole(folder) for folder in dict.fromkeys(p.parent for p in found)}
    late = {p: last[1] for p in found if (last := lasts[p.parent]) is not None and (_step(p.name) or 0) > last[0]}
    return [p for p in found if p not in late], [f"{p} is newer than {says} says: left out" for p, says in late.items()]


def _step(name: str) -> int | None:
    """The step in a checkpoint's name, read exactly: step_10 is never found inside step_100."""
    named = _STEP.findall(name)
    if named:
        return int(named[-1])
    numbers = re.findall(r"\d+", _TOKENS.sub("", name))
    return int(numbers[0]) if len(numbers) == 1 else None


def _tokens(name: str) -> int | None:
    match = _TOKENS.search(name)
    return tokens_in_name(match[1], match[2]) if match else None


def _trainer_points(run: Place, saved: Sequence[Saved], states: TrainerStates) -> list[Point]:
    """In the order in which they were written, so that of a step that a resumed run made twice the later one counts."""
    in_order = sorted((s for s in saved if s.path != run), key=lambda s: s.step or 0)
    files = [*(s.path / TRAINER_STATE for s in in_order), run / TRAINER_STATE]
    return states.points([file for file in files if file.is_file()], run=run)


def _listed_points(run: Place, checkpoints: Sequence[Place]) -> list[Point]:
    """What metrics.csv and metrics.jsonl of the run's folder, and of folders between it and the checkpoints, say."""
    folder = run if run.is_dir() else run.parent
    inner = {p.parent for p in checkpoints} - {folder} if run.is_dir() else set()
    return [point for where in (folder, *sorted(inner)) for point in read_metrics(where)]


def _unmatched(run: Place, listed: Sequence[Point], saved: Sequence[Saved]) -> list[str]:
    """Rows that name a checkpoint or hold its scores, and belong to none. (A training loss may be logged between two.)"""
    rows = [p for p in listed if p.checkpoint is not None or p.val_loss is not None or p.accuracy is not None]
    index = _Index(rows)
    used = {id(p) for s in saved for p in index.of(s)}
    lost = [p for p in rows if id(p) not in used]
    if not lost:
        return []
    names = ", ".join(_row_name(p) for p in lost[:3]) + (", ..." if len(lost) > 3 else "")
    return [
        f"{run}: {len(lost)} of {len(rows)} scored rows of its metrics match no checkpoint and are not used: {names}"
    ]


def _row_name(point: Point) -> str:
    if point.checkpoint is not None:
        return point.checkpoint
    return f"step {point.step:,}" if point.step is not None else f"{point.tokens:,} tokens"


def _with_tokens(saved: Saved, own: Sequence[Point], tokens_per_step: int | None) -> Saved:
    step = next((p.step for p in own if p.step is not None), None) if saved.step is None else saved.step
    tokens = next((p.tokens for p in own if p.tokens is not None), saved.tokens)
    if tokens is None and step is not None and tokens_per_step is not None:
        tokens = step * tokens_per_step
    return replace(saved, step=step, tokens=tokens)


class _Index:
    """Points by what they name, so that thousands of checkpoints find theirs without comparing all with all."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._by: dict[tuple[str, object], list[tuple[int, Point]]] = {}
        for number, p in enumerate(points):
            keys = (
                [("step", p.step), ("tokens", p.tokens)]
                if p.checkpoint is None
                else [("name", Path(p.checkpoint).name)]
            )
            for key in keys:
                self._by.setdefault(key, []).append((number, p))
        losses = {p.step: p.train_loss for p in points if p.step is not None and p.train_loss is not None}
        self._losses = sorted(losses.items())  # of a step that a resumed run made twice, the later one

    def of(self, saved: Saved) -> list[Point]:
        """Those that belong to a checkpoint, in their order."""
        names = [("name", saved.path.name), ("name", saved.path.stem), ("step", saved.step), ("tokens", saved.tokens)]
        found = dict(item for key in names if key[1] is not None for item in self._by.get(key, ()))
        return [found[number] for number in sorted(found) if _belongs(found[number], saved)]

    def losses(self, after: int, until: int) -> list[float]:
        """Training losses of the steps in (after, until]."""
        first, last = (bisect.bisect_right(self._losses, (step, math.inf)) for step in (after, until))
        return [loss for _, loss in self._losses[first:last]]


def _belongs(point: Point, saved: Saved) -> bool:
    if point.checkpoint is not None:
        return Path(point.checkpoint).name in (saved.path.name, saved.path.stem)
    if point.step is not None and saved.step is not None:
        return point.step == saved.step
    return point.tokens is not None and point.tokens == saved.tokens


def _scored(saved: Sequence[Saved], points: Sequence[Point]) -> list[Saved]:
    result: list[Saved] = []
    before: int | None = None
    index = _Index(points)
    for s in saved:
        own = index.of(s)
        window = _window(index, s, after=before or 0)
        result.append(
            replace(
                s,
                train_loss=math.fsum(window) / len(window) if window else None,
                losses_logged=len(window) or None,
                train_error=_error_of_mean(window),
                val_loss=next((p.val_loss for p in reversed(own) if p.val_loss is not None), None),
                accuracy=next((p.accuracy for p in reversed(own) if p.accuracy is not None), None),
            )
        )
        before = s.step
    return result


def _window(index: _Index, saved: Saved, *, after: int) -> list[float]:
    """The training losses since the checkpoint before, in order. Of a step that a resumed run made twice, the later one."""
    stepped = saved.step is not None
    named = [p.train_loss for p in index.of(saved) if p.train_loss is not None and (p.step is None or not stepped)]
    return [*named, *([] if saved.step is None else index.losses(after, saved.step))]


def _with_nearest(saved: Sequence[Saved], points: Sequence[Point]) -> tuple[list[Saved], list[str]]:
    """Where a run was evaluated at other steps than it was saved at: the nearest score, up to half an interval away."""
    scored = {p.step: p for p in points if p.step is not None and (p.val_loss is not None or p.accuracy is not None)}
    steps = [s.step for s in saved if s.step is not None]
    reach = min((b - a for a, b in itertools.pairwise(steps)), default=0) // 2
    found: list[Saved] = []
    moved: list[str] = []
    for s in saved:
        at = s.step if s.val_loss is None and s.accuracy is None else None
        distances = {} if at is None else {step: abs(step - at) for step in scored}
        near = min(
            (step for step in distances if distances[step] <= reach), key=lambda step: distances[step], default=None
        )
        if near is not None:
            moved.append(f"{s.path.name} at step {near:,}")
            s = replace(s, val_loss=scored[near].val_loss, accuracy=scored[near].accuracy)
        found.append(s)
    said = ", ".join(moved[:3]) + (", ..." if len(moved) > 3 else "")
    note = f"saved and evaluated at different steps: the nearest score within {reach:,} steps counts ({said})"
    return found, [note] if moved else []


def _error_of_mean(losses: Sequence[float]) -> float | None:
    """From the differences of successive losses: a falling loss is no noise. Larger of few, as Student's t is."""
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return None
    steps = [(b - a) ** 2 for a, b in itertools.pairwise(losses)]
    return reach(len(steps)) / SPREAD * math.sqrt(math.fsum(steps) / len(steps) / 2 / len(losses))


def _require_positions(run: Place, saved: Sequence[Saved]) -> None:
    lost = [s.path.name for s in saved if s.step is None and s.tokens is None]
    if lost:
        raise ScanError(
            f"{run}: no step can be read from the name {lost[0]!r}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}: "
            "rename it (checkpoint-500), or list it in a metrics.csv with the columns checkpoint and "
            "step or tokens; or name each checkpoint, not the folder above, and `merge` takes their mean"
        )


def _refuse_duplicates(run: Place, saved: Sequence[Saved]) -> None:
    seen: dict[int, Place] = {}
    for s in saved:
        position = s.step if s.step is not None else s.tokens
        if position is None:
            continue
        if position in seen:
            if s.path.parent != seen[position].parent:
                raise ScanError(
                    f"{run} holds several runs ({seen[position].parent.name}, {s.path.parent.name}, ...): name each of "
                    "them, not the folder above"
                )
            raise ScanError(
                f"{run}: {seen[position].name} and {s.path.name} are both step {position:,}: a checkpoint must not count "
                "twice; move one of them away"
            )
        seen[position] = s.path


def _why_none(path: Place) -> str:
    pickles = [p for p in sorted(path.rglob("*")) if p.name.endswith(UNREAD)][:1] if path.is_dir() else []
    if pickles:
        return f"{pickles[0].name} {unread()}"
    return "name a folder with checkpoint-N/ folders or .safetensors files in it"
