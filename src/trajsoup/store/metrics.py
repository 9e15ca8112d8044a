"""Scores that a training run left behind: trainer_state.json, metrics.csv, metrics.jsonl.

All become the same list of `Point`s; runs.py matches them with checkpoints.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trajsoup.errors import ScanError
from trajsoup.store.json_file import decode_json, read_json
from trajsoup.store.remote import Place

NAMES = {
    "checkpoint": ("checkpoint", "path", "name"),
    "step": ("step", "global_step", "steps", "iteration", "iter"),
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
_ACCURACY = re.compile(r"(?<![a-z])acc(?:uracy)?(?![a-z])")
_NO_VALIDATION = re.compile(r"train|stderr")  # an accuracy on training data, or the error bar of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One line of a log: where it was written, and what it says."""

    checkpoint: str | None = None
    step: int | None = None
    tokens: int | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    accuracy: float | None = None  # mean over all columns of validation accuracy


def read_trainer_state(path: Place) -> list[Point]:
    """Read the log of a Hugging Face Trainer. Its closing summary, whose train_loss is of the whole run, is left out."""
    state = read_json(path, dict[str, Any], cure="copy or save it again", error=ScanError, nan=True)
    history = state.get("log_history")
    entries = [e for e in history if isinstance(e, dict)] if isinstance(history, list) else []
    points = [
        point_of(_without_training_accuracy(e), f"{path}, log entry {i + 1}")
        for i, e in enumerate(entries)
        if "loss" in e or "train_runtime" not in e  # entries with a token count have a train_runtime too
    ]
    tokens = state.get("num_input_tokens_seen") or None
    return [*points, point_of({"step": state.get("global_step"), "tokens": tokens}, str(path))]


def read_metrics(folder: Place) -> list[Point]:
    """Read metrics.csv and metrics.jsonl of a run folder, whichever are there."""
    points: list[Point] = []
    table = folder / "metrics.csv"
    if table.is_file():
        points += _points(_table_rows(table), table)
    lines = folder / "metrics.jsonl"
    if lines.is_file():
        points += _points(_json_lines(lines), lines)
    return points


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
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScanError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8") from error


def _without_training_accuracy(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A Trainer names what it measures on validation data eval_...; any other accuracy is of a training batch."""
    return {name: value for name, value in entry.items() if str(name).startswith("eval") or not _is_accuracy(str(name))}


def _is_accuracy(name: str) -> bool:
    return bool(_ACCURACY.search(name.lower())) and not _NO_VALIDATION.search(name.lower())


def point_of(row: Mapping[str, Any], where: str) -> Point:
    """What one row of a log says: its columns are known by the names above."""
    cells = {str(name).strip().lower(): value for name, value in row.items() if value not in (None, "")}
    values = {field: next((cells[n] for n in names if n in cells), None) for field, names in NAMES.items()}
    accuracies = [_number(value, where, name) for name, value in cells.items() if _is_accuracy(name)]
    return Point(
        checkpoint=None if values["checkpoint"] is None else str(values["checkpoint"]).strip(),
        step=_whole(values["step"], where, "step"),
        tokens=_whole(values["tokens"], where, "tokens"),
        train_loss=None if values["train_loss"] is None else _number(values["train_loss"], where, "train_loss"),
        val_loss=None if values["val_loss"] is None else _number(values["val_loss"], where, "val_loss"),
        accuracy=math.fsum(accuracies) / len(accuracies) if accuracies else None,
    )


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
        raise ScanError(f"{where}: {name} is {value!r}, which is not a whole number: mend it")
    return int(value) if isinstance(value, int | str) and str(value).strip().isdigit() else int(number)
