"""Scores that a training run left behind: trainer_state.json, metrics.csv, metrics.jsonl.

All become the same list of `Point`s; runs.py matches them with checkpoints.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trajsoup.errors import ScanError
from trajsoup.store.json_file import decode_json, read_json
from trajsoup.store.regular import read_words
from trajsoup.store.remote import Place

NAMES = {
    "checkpoint": ("checkpoint", "path", "name"),
    "step": (
        "step",
        "global_step",
        "train/global_step",
        "steps",
        "iteration",
        "iter",
        "_step",
    ),  # W&B's _step counts calls
    "tokens": (
        "tokens",
        "num_input_tokens_seen",
        "tokens_seen",
        "consumed_tokens",
        "num_tokens",
        "n_tokens_seen",
        "throughput/total tokens",
    ),
    "train_loss": (
        "train_loss",
        "loss",
        "train/loss",
        "training_loss",
        "lm_loss",
        "lm loss",
        "train/ce loss",
        "loss_metrics/global_avg_loss",
    ),
    "val_loss": (
        "val_loss",
        "eval_loss",
        "valid_loss",
        "validation_loss",
        "val/loss",
        "eval/loss",
        "validation_metrics/loss",
        "lm loss validation",
    ),
}
LOGS = ("metrics.csv", "metrics.jsonl", "history.csv", "history.jsonl", "wandb_export*.csv")  # in a run's folder
_WANDB = re.compile(r"^.* - (?=\S)")  # an export of a chart writes the run's name before the metric's
_LIMITS = re.compile(r"__(min|max)$")  # and its limits beside it
_LOSS = re.compile(r"^(eval|val|valid|validation)[_/](.+)[_/]loss$")  # of one of several validation sets
_ACCURACY = re.compile(r"(?<![a-z])acc(?:uracy)?(?![a-z])")
_NO_VALIDATION = re.compile(r"train|stderr")  # an accuracy on training data, or the error bar of one


Entry = dict[str, Any]  # of a Trainer's log


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One line of a log: where it was written, and what it says."""

    checkpoint: str | None = None
    step: int | None = None
    tokens: int | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    accuracy: float | None = None  # mean over all columns of validation accuracy
    losses: tuple[tuple[str, float], ...] = ()  # by the name of their column, where there are several validation sets


def read_trainer_state(path: Place, *, known: Sequence[Entry] = ()) -> tuple[list[Point], list[Entry]]:
    """Read the log of a Hugging Face Trainer: its points, and its entries as they are.

    Its closing summary, whose train_loss is of the whole run, is left out, and so are the `known` entries where it begins
    with them all.
    """
    state = read_json(path, dict[str, Any], cure="copy or save it again", error=ScanError, nan=True)
    history = state.get("log_history")
    entries = [e for e in history if isinstance(e, dict)] if isinstance(history, list) else []
    first = len(known) if entries[: len(known)] == [*known] else 0
    points = [
        point_of(_without_training_accuracy(e), f"{path}, log entry {i + 1}")
        for i, e in enumerate(entries[first:], start=first)
        if "loss" in e or "train_runtime" not in e  # entries with a token count have a train_runtime too
    ]
    tokens = state.get("num_input_tokens_seen") or None
    return [*points, point_of({"step": state.get("global_step"), "tokens": tokens}, str(path))], entries


def read_metrics(folder: Place) -> list[Point]:
    """Read metrics.csv and metrics.jsonl of a run folder, and exports of W&B, whichever are there."""
    points: list[Point] = []
    for name in LOGS:
        for file in sorted(folder.glob(name)) if "*" in name else [folder / name]:
            if file.is_file():
                points += _points(_table_rows(file) if file.suffix == ".csv" else _json_lines(file), file)
    return points


def with_metric(points: Sequence[Point], metric: str | None, *, run: object) -> tuple[list[Point], list[str]]:
    """The points with the validation loss that is meant, and what there is to say of the others.

    `metric` is the name of a column. Without it: the plain validation loss, or the only other one.
    """
    names = sorted({name for p in points for name, _ in p.losses})
    if metric is None and (len(names) == 0 or any(p.val_loss is not None for p in points)):
        return list(points), []
    if metric is None and len(names) > 1:
        return list(points), [f"{run} has {len(names)} validation losses, {', '.join(names)}: name one with --metric"]
    wanted = names[0] if metric is None else metric.strip().lower()
    if wanted in NAMES["val_loss"]:
        return list(points), []
    if wanted not in names:
        known = f"it has {', '.join(names)}" if names else "no column is called eval_..._loss"
        raise ScanError(f"{run}: its logs have no {metric!r}: {known}")
    return [replace(p, val_loss=dict(p.losses).get(wanted)) for p in points], []


def _points(rows: Iterable[tuple[int, Mapping[str, Any]]], path: Place) -> list[Point]:
    found: list[Point] = []
    for number, row in rows:
        point = point_of(row, f"{path}, line {number}")
        if point.checkpoint is None and point.step is None and point.tokens is None:
            raise ScanError(
                f"{path}, line {number}: says neither checkpoint, step nor tokens (columns: {', '.join(map(str, row))}): "
                "add one of these columns"
            )
        found.append(point)
    return found


def _table_rows(path: Place) -> Iterable[tuple[int, Mapping[str, Any]]]:
    rows = csv.DictReader(io.StringIO(_text(path)))
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise ScanError(f"{path}, line {rows.line_num}: is not CSV ({error}): mend or remove the line") from error


def _json_lines(path: Place) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        cure = "mend or remove the line"
        yield number, decode_json(line.encode(), dict[str, Any], where=where, cure=cure, error=ScanError, nan=True)


def _text(path: Place) -> str:
    try:
        return read_words(path, encoding="utf-8-sig")
    except OSError as error:
        raise ScanError(f"cannot read {path}: {error.strerror or error}: check it and its permissions") from error
    except UnicodeDecodeError as error:
        raise ScanError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8") from error


def _without_training_accuracy(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A Trainer names what it measures on validation data eval_...; any other accuracy is of a training batch."""
    return {name: value for name, value in entry.items() if str(name).startswith("eval") or not _is_accuracy(str(name))}


def _is_accuracy(name: str) -> bool:
    return bool(_ACCURACY.search(name.lower())) and not _NO_VALIDATION.search(name.lower())


def point_of(row: Mapping[str, Any], where: str) -> Point:
    """What one row of a log says: its columns are known by the names above."""
    named = {_WANDB.sub("", str(name).strip().lower()): value for name, value in row.items() if value not in (None, "")}
    cells = {name: value for name, value in named.items() if not _LIMITS.search(name)}
    values = {field: next((cells[n] for n in names if n in cells), None) for field, names in NAMES.items()}
    accuracies = [_number(value, where, name) for name, value in cells.items() if _is_accuracy(name)]
    return Point(
        checkpoint=None if values["checkpoint"] is None else str(values["checkpoint"]).strip(),
        step=_whole(values["step"], where, "step"),
        tokens=_whole(values["tokens"], where, "tokens"),
        train_loss=None if values["train_loss"] is None else _number(values["train_loss"], where, "train_loss"),
        val_loss=None if values["val_loss"] is None else _number(values["val_loss"], where, "val_loss"),
        accuracy=math.fsum(accuracies) / len(accuracies) if accuracies else None,
        losses=tuple((name, _number(cells[name], where, name)) for name in sorted(cells) if _is_one_loss(name)),
    )


def _is_one_loss(name: str) -> bool:
    return bool(_LOSS.match(name)) and name not in NAMES["val_loss"]


def _number(value: Any, where: str, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ScanError(f"{where}: {name} is {value!r:.40}, which is not a number: mend it") from error


def _whole(value: Any, where: str, name: str) -> int | None:
    if value is None:
        return None
    number = _number(value, where, name)
    if not math.isfinite(number) or number != int(number) or number < 0:
        raise ScanError(f"{where}: {name} is {value!r:.40}, which is not a whole number: mend it")
    return int(value) if isinstance(value, int | str) and str(value).strip().isdigit() else int(number)
