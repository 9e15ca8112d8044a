"""`trajsoup scan`: find the checkpoints of existing runs and write a study file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajsoup.cli.console import say, show_json, show_notes, show_table
from trajsoup.cli.options import ForkPoint, Json, Metric, TokensPerStep

RunDirs = Annotated[list[str], typer.Argument(metavar="RUN_DIR", help="One folder or URL per run.", show_default=False)]


def scan(
    run_dirs: RunDirs,
    output: Annotated[Path, typer.Option("--output", "-o", help="The study file to write.")] = Path("study.yaml"),
    fork_point: ForkPoint = None,
    tokens_per_step: TokensPerStep = None,
    metric: Metric = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing study file.")] = False,
    as_json: Json = False,
) -> None:
    """Find checkpoints, tokens and losses of existing runs; write a study file."""
    from trajsoup.errors import OutputError
    from trajsoup.merge.branches import save_branches, scan_branches

    if output.exists() and not overwrite:
        raise OutputError(f"{output} exists: pass --overwrite to replace it, or choose another --output")
    study = scan_branches(run_dirs, fork_point=fork_point, tokens_per_step=tokens_per_step, metric=metric)
    save_branches(study, output)
    if as_json:
        show_json(
            {
                "study": output,
                "unit": study.unit,
                "branches": {b.name: [_entry(s) for s in b.checkpoints] for b in study.branches},
                "notes": [*study.notes, *study.hints],
            }
        )
        return
    unit = study.unit
    rows = []
    for pool in study.pools():
        losses = [c.val_loss for c in pool.candidates if c.val_loss is not None]
        last = pool.candidates[-1]
        rows.append(
            [
                pool.branch,
                len(pool.candidates),
                pool.candidates[0].tokens,
                last.tokens,
                last.train_loss,
                min(losses, default=None),
            ]
        )
    columns = ["branch", "checkpoints", f"first ({unit})", f"last ({unit})", "train loss at last", "best val loss"]
    show_table(f"{len(study.branches)} branches", columns, rows)
    show_notes([*study.notes, *study.hints])
    say(f"study written to {output}; next: trajsoup doctor {output}, then trajsoup merge {output} -o OUT")


def _entry(saved: object) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(saved)  # type: ignore[call-overload]
