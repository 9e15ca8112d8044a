"""Branches as the report shows them: recipe, progress, training curve and what the screen said."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trajsoup.report import contents as c
from trajsoup.study.records import results as r
from trajsoup.study.train.outcomes import METRICS, OUTCOME


def read_branches(
    study: Path,
    *,
    plan: r.PlanRecord | None,
    train: r.TrainRecord | None,
    screen: r.ScreenRecord | None,
    validation: r.ValidationRecord | None,
) -> tuple[c.Branch, ...]:
    """Every branch that any record names, in the plan's order."""
    planned = {} if plan is None else plan.branches
    trained = {} if train is None else {b.branch: b for b in train.branches}
    verdicts = {} if screen is None else {v.branch: v for v in screen.verdicts}
    scored = () if validation is None else validation.checkpoints
    names = dict.fromkeys([*planned, *trained, *(s.branch for s in scored), *verdicts])
    horizon = None if plan is None else plan.horizon
    found: list[c.Branch] = []
    for name in names:
        ended = trained.get(name)
        metrics = _metrics_file(study, name, ended)
        rows = _rows(metrics)
        losses = tuple(_losses(rows))
        outcome = {} if metrics is None else _json(metrics.with_name(OUTCOME))
        verdict = verdicts.get(name)
        tokens = ended.tokens if ended is not None else losses[-1][0] if losses else 0
        if ended is not None:
            status, message = ended.status, ended.message or ""
        elif outcome.get("status"):
            status, message = str(outcome["status"]), str(outcome.get("message", ""))
        else:
            status, message = ("running" if losses else "waiting"), ""
        found.append(
            c.Branch(
                name=name,
                status=status,
                tokens=tokens,
                horizon=horizon,
                recipe=planned[name].recipe if name in planned else {},
                changed=tuple(planned[name].changed) if name in planned else (),
                message=message,
                admitted=None if verdict is None else verdict.admitted,
                loss_gap=None if verdict is None else verdict.loss_gap,
                tolerance=None if screen is None else screen.tolerance,
                why=_why(verdict, screen, plan),
                gaps=() if verdict is None else verdict.gaps,
                losses=losses,
                checkpoints=len(ended.checkpoints) if ended is not None else 0,
                tokens_per_second=_speed(rows) if status == "running" else None,
            )
        )
    return tuple(found)


def _why(verdict: r.ScreenVerdict | None, screen: r.ScreenRecord | None, plan: r.PlanRecord | None) -> str:
    if verdict is None or screen is None:
        return "" if screen is None else "not screened: it has no loss at the horizon"
    if verdict.branch == screen.baseline:
        return "the baseline"
    side = "at most" if verdict.loss_gap <= screen.tolerance else "above"
    text = f"J = {verdict.loss_gap:+.2%} at the horizon, {side} the tolerance {screen.tolerance:.2%}"
    if verdict.suspiciously_low:
        text += "; far below the baseline, look for overfitting"
    return text


def _metrics_file(study: Path, name: str, ended: r.TrainedBranch | None) -> Path | None:
    """metrics.jsonl of a branch, if it lies inside the study: a record must not lead anywhere else."""
    relative = (
        Path("branches", name, METRICS) if ended is None else None if ended.metrics is None else Path(ended.metrics)
    )
    if relative is None:
        return None
    root = study.resolve()
    try:
        path = (root / relative).resolve()
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(root) and path.is_file() else None


def _rows(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # being written
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _losses(rows: Iterable[dict[str, Any]]) -> Iterable[tuple[int, float]]:
    last = -1
    for row in rows:
        tokens, loss = row.get("tokens"), row.get("train_loss", row.get("loss"))
        if isinstance(tokens, int | float) and isinstance(loss, int | float) and math.isfinite(loss) and tokens > last:
            last = int(tokens)
            yield last, float(loss)


def _speed(rows: list[dict[str, Any]]) -> float | None:
    speed = rows[-1].get("tokens_per_second") if rows else None
    return float(speed) if isinstance(speed, int | float) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
