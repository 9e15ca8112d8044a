"""If I merged now: what the folders of runs hold at this moment, while they train. Never needs torch.

run folders -> changed? -> scan -> Branches -> best raw checkpoint, merges (where somebody scores), saturation -> Glance
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trajsoup.core.estimators import SoupLosses, fit_branches
from trajsoup.core.methods.asking import Scoring
from trajsoup.core.pool import Pool, Unit
from trajsoup.core.quantity import format_tokens
from trajsoup.core.saturation import Saturation, saturation
from trajsoup.core.soup import Row, soup_row
from trajsoup.errors import ScanError, SelectionError, TheoryError
from trajsoup.merge.branches import Branches, scan_branches
from trajsoup.merge.choice import Choice, decide, row_of
from trajsoup.merge.unscored import scored
from trajsoup.store.trainer_states import TrainerStates

METHODS = ("lawa", "single-merge", "trajectory-soup")
LABELS = {
    "lawa": "last checkpoints (LAWA)",
    "single-merge": "best merge of one run",
    "trajectory-soup": "Trajectory Soup",
}
NEWEST = 3  # folders of a run that may still be written
LARGEST_K = 4  # of merges that are scored at every look


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A model that could be had now."""

    label: str
    loss: float | None  # None: nobody scored it
    made_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One run."""

    name: str
    checkpoints: int
    position: int
    newest: float | None  # validation loss of the newest checkpoint
    best: float | None
    levelled: Saturation | None  # None: too few losses to tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """Everything that is known now."""

    unit: Unit
    runs: tuple[Progress, ...]
    lines: tuple[Line, ...]
    saturated: bool | None  # every run that has losses enough; None: none has
    worth_of_branch: float | None  # nats that one more run like these would take off; None: needs two and scores
    words: tuple[str, ...] = ()

    @property
    def best(self) -> Line | None:
        """The best model that could be had now."""
        scored = [line for line in self.lines if line.loss is not None]
        return min(scored, key=lambda line: line.loss or math.inf, default=None)


def fingerprint(paths: Sequence[Path | str]) -> str:
    """Names, sizes and times of what lies in the runs' folders: another one when a checkpoint or a log has changed.

    Of the newest folders the files count too: one that is still written changes, and its folder does not.
    """
    found = hashlib.sha256()
    for path in paths:
        inside = _entries(path, found)
        for folder in sorted(inside, key=lambda folder: inside[folder])[-NEWEST:]:
            _entries(folder, found)
    return found.hexdigest()


def _entries(path: Path | str, found: hashlib._Hash) -> dict[str, int]:
    """Put what lies in a folder into the hash; return the folders in it, with the time of their last change."""
    inside: dict[str, int] = {}
    try:
        with os.scandir(path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                stat = entry.stat()
                found.update(f"{entry.path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
                if entry.is_dir():
                    inside[entry.path] = stat.st_mtime_ns
    except OSError:
        found.update(f"{path} is not there\n".encode())
    return inside


def look(
    paths: Sequence[Path | str],
    *,
    tokens_per_step: int | None = None,
    metric: str | None = None,
    states: TrainerStates | None = None,
) -> Branches | None:
    """What the runs hold now; None where none has a whole checkpoint yet. A run that has none, or is just changing, waits.

    `states` keep what the runs' logs said from look to look.
    """

    def scan(those: Sequence[Path | str]) -> Branches | None:
        try:
            return (
                scan_branches(those, tokens_per_step=tokens_per_step, metric=metric, states=states) if those else None
            )
        except (ScanError, FileNotFoundError):
            return None

    return scan(paths) or scan([path for path in paths if scan([path]) is not None])


def glance(study: Branches, *, scoring: Scoring | None = None) -> Glance:
    """What could be had of these runs now, by logged losses; where `scoring` scores, by its own, and merges too."""
    study = study if scoring is None else scored(study, scoring)
    pools = study.pools()
    runs = tuple(_progress(pool) for pool in pools)
    lines = [*_raw(pools), *_merged(study, scoring)]
    told = [run.levelled.saturated for run in runs if run.levelled is not None]
    worth = None if scoring is None else _worth(pools, scoring)
    found = Glance(
        unit=study.unit,
        runs=runs,
        lines=tuple(lines),
        saturated=all(told) if told else None,
        worth_of_branch=worth,
    )
    return replace(found, words=tuple(_words(found)))


def _progress(pool: Pool) -> Progress:
    curve = [(float(c.tokens), c.val_loss) for c in pool.candidates if c.val_loss is not None]
    losses = [loss for _, loss in curve if math.isfinite(loss)]
    return Progress(
        name=pool.branch,
        checkpoints=len(pool.candidates),
        position=pool.candidates[-1].tokens,
        newest=pool.candidates[-1].val_loss,
        best=min(losses, default=None),
        levelled=saturation(curve),
    )


def _raw(pools: Sequence[Pool]) -> list[Line]:
    scored = [(c.val_loss, c) for pool in pools for c in pool.candidates if c.val_loss is not None]
    if not scored:
        return []
    loss, best = min(scored, key=lambda item: (item[0], item[1].tokens))
    return [Line(label="best checkpoint", loss=loss, made_of=f"{best.branch}@{format_tokens(best.tokens)}")]


def _merged(study: Branches, scoring: Scoring | None) -> list[Line]:
    found: list[Line] = []
    for name in METHODS:
        if name == "trajectory-soup" and len(study.branches) < 2:
            continue
        try:
            choice = Choice(strategy=name, screened=False, k=None)
            decision, _, _ = decide(study, choice, scoring=scoring)
        except SelectionError:  # too few checkpoints, or no score to rank them by
            continue
        row = row_of(decision, choice)
        loss = None if scoring is None else _loss(scoring, row)
        k, count = decision.option.k, len(row.weights)
        of = "" if k is None else f", K={k}"
        made_of = f"{'+'.join(decision.option.branches)}{of}, {count} checkpoint{'s' * (count != 1)}"
        found.append(Line(label=LABELS[name], loss=loss, made_of=made_of))
    return found


def _loss(scoring: Scoring, row: Row) -> float | None:
    losses = scoring([row])[row.name].losses
    return None if losses is None else losses.loss()


def _worth(pools: Sequence[Pool], scoring: Scoring) -> float | None:
    """b / (N (N + 1)) from the anchors and their soup."""
    if len(pools) < 2:
        return None
    k = min(LARGEST_K, *(len(pool.candidates) for pool in pools))
    try:
        rows: dict[tuple[str, ...], Row] = {(pool.branch,): soup_row([pool], k=k, name=pool.branch) for pool in pools}
        rows[tuple(pool.branch for pool in pools)] = soup_row(pools, k=k, name="all")
        scores = scoring(list(rows.values()))
        losses = {(frozenset(names), k): scores[row.name].losses for names, row in rows.items()}
        known = {soup: found.loss() for soup, found in losses.items() if found is not None}
        return fit_branches(SoupLosses(soups=known), k=k).worth_of_branch(len(pools))
    except (SelectionError, TheoryError):
        return None


def _words(found: Glance) -> list[str]:
    words: list[str] = []
    best = found.best
    if best is not None:
        words.append(f"Best now: {best.label} ({best.made_of}), {best.loss:.4f}.")
    if unscored := sum(line.loss is None for line in found.lines):
        words.append(
            f"{unscored} of {len(found.lines)} lines are not scored, so none of them can be the best: --validation FILE "
            "scores merges."
        )
    for run in found.runs:
        level = run.levelled
        if level is None:
            words.append(f"{run.name}: too few losses to tell whether more tokens pay.")
        elif level.saturated:
            words.append(
                f"{run.name} has saturated: its second half brought {level.gain:.4f} nats (noise {level.noise:.4f}). "
                "Stop it, merge, or spend the tokens on another branch."
            )
        else:
            words.append(f"{run.name} still falls: 10 % more tokens would take {level.per_tenth:.4f} nats off.")
    if found.worth_of_branch is not None:
        words.append(f"One more run like these would take {found.worth_of_branch:.4f} nats off their soup.")
    return words
