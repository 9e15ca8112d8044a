"""Scores that a training run left behind: trainer_state.json, metrics.csv, metrics.jsonl.

All become the same list of `Point`s; runs.py matches them with checkpoints.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajsoup.errors import ScanError
from trajsoup.store.checkpoint import load_json

NAMES = {
    "checkpoint": ("checkpoint", "path", "name"),
    "step": ("step", "global_step", "steps", "iteration", "iter"),
    "tokens": ("tokens", "num_input_tokens_seen", "tokens_seen", "consumed_tokens", "num_tokens"),
    "train_loss": ("train_loss", "loss", "train/loss", "training_loss", "lm_loss"),
    "val_loss": ("val_loss", "eval_loss", "valid_loss", "validation_loss", "val/loss", "eval/loss"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One line of a log: where it was written, and what it says."""

    checkpoint: str | None = None
    step: int | None = None
    tokens: int | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    accuracy: float | None = None  # mean over all accuracy columns


def read_trainer_state(path: Path) -> list[Point]:
    """Read the log of a Hugging Face Trainer. Its closing summary (train_runtime without a loss) is not a log point."""
    state = load_json(path)
    history = state.get("log_history")
    entries = [e for e in history if isinstance(e, dict)] if isinstance(history, list) else []
    points = [_point(e, f"{path}, log entry {i + 1}") for i, e in enumerate(entries) if not _is_summary(e)]
    tokens = state.get("num_input_tokens_seen") or None
    return [*points, _point({"step": state.get("global_step"), "tokens": tokens}, str(path))]


def _is_summary(entry: Mapping[str, Any]) -> bool:
    """With include_num_input_tokens_seen every log line has a train_runtime; only the summary has no loss of its own."""
    return "train_runtime" in entry and "loss" not in entry


def read_metrics(folder: Path) -> list[Point]:
    """Read metrics.csv and metrics.jsonl of a run folder, whichever are there."""
    points: list[Point] = []
    table = folder / "metrics.csv"
    if table.is_file():
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            points += _points(rows, table, first_line=2)
    lines = folder / "metrics.jsonl"
    if lines.is_file():
        points += _points(_json_lines(lines), lines, first_line=1)
    return points


def _points(rows: Iterable[Mapping[str, Any]], path: Path, *, first_line: int) -> list[Point]:
    found: list[Point] = []
    for number, row in enumerate(rows, start=first_line):
        point = _point(row, f"{path}, line {number}")
        if point.checkpoint is None and point.step is None and point.tokens is None:
            raise ScanError(
                f"{path}, line {number}: says neither checkpoint, step nor tokens (columns: {', '.join(map(str, row))}): "
                "add one of these columns"
            )
        found.append(point)
    return found


def _json_lines(path: Path) -> Iterable[Mapping[str, Any]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ScanError(f"{path}, line {number}: is not JSON ({error}): mend or remove the line") from error
        if not isinstance(row, dict):
            raise ScanError(f"{path}, line {number}: is not a JSON object: mend or remove the line")
        yield row


def _point(row: Mapping[str, Any], where: str) -> Point:
    cells = {str(name).strip().lower(): value for name, value in row.items() if value not in (None, "")}
    values = {field: next((cells[n] for n in names if n in cells), None) for field, names in NAMES.items()}
    accuracies = [_number(value, where, name) for name, value in cells.items() if "acc" in name]
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
    except (TypeError, ValueError) as error:
        raise ScanError(f"{where}: {name} is {value!r}, which is not a number: mend it") from error


def _whole(value: Any, where: str, name: str) -> int | None:
    if value is None:
        return None
    number = _number(value, where, name)
    if not math.isfinite(number) or number != int(number) or number < 0:
        raise ScanError(f"{where}: {name} is {value!r}, which is not a whole number: mend it")
    return int(value) if isinstance(value, int | str) and str(value).strip().isdigit() else int(number)
