"""What `merge` prints of a plan: the screen, the ingredients with their weights, and what a dry run would read and write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trajsoup.cli.console import say, show_json, show_notes, show_table
from trajsoup.core.quantity import format_bytes

if TYPE_CHECKING:
    from trajsoup.merge.plan import SoupPlan


def show_plan(plan: SoupPlan, output: str | None, *, as_json: bool) -> None:
    """All of it, and what the merge would cost. Nothing is written."""
    from trajsoup.engine.workers import default_buffer_bytes
    from trajsoup.merge.plan import read_rate

    rate, buffers = read_rate(plan), default_buffer_bytes(plan.checkpoints.values())
    seconds = plan.read_bytes / rate
    if as_json:
        show_json(
            {
                "row": dict(plan.row.weights),
                "position_unit": plan.unit,
                "read_bytes": plan.read_bytes,
                "write_bytes": plan.layout.nbytes,
                "files": [file.name for file in plan.layout.files],
                "buffer_bytes": buffers,
                "read_seconds": seconds,
                "screen": [
                    {
                        "branch": v.branch,
                        "loss_gap": v.loss_gap,
                        "spread": v.spread,
                        "verdict": v.word,
                        "admitted": v.admitted,
                        "forced": v.forced,
                    }
                    for v in plan.verdicts
                ],
                "notes": plan.notes,
            }
        )
        return
    show_screen(plan)
    show_notes(plan.notes)
    show_row(plan)
    say(f"reads   {format_bytes(plan.read_bytes)} from {len(plan.checkpoints)} checkpoints, once")
    say(
        f"writes  {format_bytes(plan.layout.nbytes)} in {len(plan.layout.files)} files to {output or '(no --output yet)'}"
    )
    say(f"memory  about {format_bytes(buffers)} of buffers, whatever the size of the model")
    say(f"time    about {seconds:,.1f} s to read at {format_bytes(rate)}/s (a sample); writing comes on top")
    say("nothing was written (--dry-run)")


def show_screen(plan: SoupPlan) -> None:
    """Which branches were admitted, if they were screened."""
    if plan.verdicts:
        rows = [
            [
                v.branch,
                v.tokens,
                v.loss,
                v.baseline_loss,
                v.gap,
                "as logged" if v.window_tokens is None else v.window_tokens,
                v.word,
            ]
            for v in plan.verdicts
        ]
        columns = [
            "branch",
            f"compared at ({plan.unit})",
            "train loss",
            "baseline's",
            "gap J",
            "smoothed over",
            "verdict",
        ]
        show_table("Compatibility screen: J is how far the training loss lies above the baseline's", columns, rows)


def show_left_out(plan: SoupPlan) -> None:
    """At the end, where it is read: a soup of fewer branches than were named."""
    out = [v for v in plan.verdicts if not v.admitted]
    if out:
        why = ", ".join(f"{v.branch} has J {v.gap}, above {v.tolerance:.1%}" for v in out)
        cure = " ".join(f"--force {v.branch}" for v in out)
        say(f"{len(plan.verdicts) - len(out)} of {len(plan.verdicts)} branches are in it: {why} ({cure} takes all)")


def show_row(plan: SoupPlan) -> None:
    """The ingredients."""
    rows = []
    for key, weight in plan.row.weights.items():
        c = plan.candidates.get(key)
        rows.append(
            [Path(key).name, c.branch, c.tokens, f"{weight:.6g}", c.val_loss, c.accuracy]
            if c
            else [Path(key).name, "", None, f"{weight:.6g}", None, None]
        )
    columns = ["ingredient", "branch", plan.unit, "weight", "val loss", "accuracy"]
    if not plan.candidates:
        columns, rows = ["ingredient", "weight"], [[key, f"{weight:.6g}"] for key, weight in plan.row.weights.items()]
    show_table(
        f"{plan.row.name}: {len(rows)} ingredient{'s' * (len(rows) != 1)}, weights sum to {plan.row.total:.6g}",
        columns,
        rows,
    )
