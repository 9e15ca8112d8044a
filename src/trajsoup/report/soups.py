"""What a click shows: every model that a figure or table may name, with its row of W, and every raw checkpoint.

rows, sweeps -> soups by name        validation, train -> checkpoints by key        (assets/page.js reads both)
"""

from __future__ import annotations

from typing import Any

from trajsoup.core.quantity import format_tokens
from trajsoup.study.records.files import Records
from trajsoup.study.records.rows import RowRecord, RowsRecord
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord
from trajsoup.study.records.train import TrainRecord
from trajsoup.study.records.validation import ValidationRecord


def soups_data(records: Records) -> dict[str, dict[str, Any]]:
    """Every soup by name; a row of the main table goes before a point of a sweep."""
    found: dict[str, dict[str, Any]] = {}
    for sweep in records.every(SweepRecord).values():
        for p in sweep.points:
            tested = {"test loss": p.test_loss, "test accuracy": p.test_accuracy}
            found[p.row] = _soup(
                p,
                label=_label(p, sweep),
                strategy=f"{sweep.title}; {p.strategy}",
                **{name: None if estimate is None else estimate.value for name, estimate in tested.items()},
            )
    rows = records.read(RowsRecord)
    for row in () if rows is None else rows.rows:
        strategy = f"{row.strategy}, {row.select}, {row.coefficients}"
        found[row.name] = _soup(row, label=row.label, strategy=strategy)
    return found


def checkpoints_data(records: Records) -> dict[str, list[Any]]:
    """Every raw checkpoint: branch, tokens, validation scores and hash."""
    train, validation = records.read(TrainRecord), records.read(ValidationRecord)
    hashes = {} if train is None else {k.key: k.sha256 for run in train.runs for k in run.checkpoints}
    scored = () if validation is None else validation.scored
    return {c.key: [c.branch, c.tokens, c.loss, c.accuracy, hashes.get(c.key)] for c in scored}


def _soup(row: RowRecord | SweepPoint, *, label: str, strategy: str, **tested: float | None) -> dict[str, Any]:
    scores = {"validation loss": row.validation_loss, "validation accuracy": row.validation_accuracy, **tested}
    return {
        "label": label,
        "strategy": strategy,
        "k": row.k,
        "members": row.branches,
        "size": len(row.weights),
        "horizon": row.horizon,
        "scores": {name: value for name, value in scores.items() if value is not None},
        "row": [[key, weight] for key, weight in row.weights.items()],
    }


def _label(point: SweepPoint, sweep: SweepRecord) -> str:
    """A point in words: tokens as tokens, a K as a K."""
    if isinstance(point.x, str):
        return f"{point.series}: {point.x}"
    number = format_tokens(round(point.x)) if point.x >= 1000 else f"{point.x:g}"
    return f"{point.series}, {sweep.x_label} {number}"
