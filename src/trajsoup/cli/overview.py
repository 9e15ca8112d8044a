"""The live overview of `trajsoup status --watch`: what the page shows at its top, in a terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trajsoup.report.contents import Contents

SECONDS = 1.0
SIGNS = {"done": "●", "running": "◐", "waiting": "○"}


def watch(folder: Path) -> None:
    """Show the overview until the study is done or the user stops."""
    from rich.console import Console
    from rich.live import Live

    from trajsoup.report.reading import read_contents
    from trajsoup.report.serve import fingerprint

    console = Console(highlight=False, markup=False, emoji=False)
    contents = read_contents(folder)
    if not console.is_terminal:
        console.print(overview(contents))
        return
    seen = fingerprint(folder)
    with Live(overview(contents), console=console, auto_refresh=False) as live:
        while contents.running:
            time.sleep(SECONDS)
            now = fingerprint(folder)
            if now != seen:
                seen, contents = now, read_contents(folder)
                live.update(overview(contents), refresh=True)
    typer.echo("done")


def overview(contents: Contents) -> RenderableType:
    """Stages, branches with their progress, and the answer as soon as there is one."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    stages = Text("  ".join(f"{SIGNS.get(s.status, '?')} {s.name}" for s in contents.stages))
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in range(4):
        table.add_column(justify="left", no_wrap=column != 3)
    for branch in contents.branches:
        loss = f"loss {branch.losses[-1][1]:.4f}" if branch.losses else ""
        verdict = {None: "", True: "admitted", False: "rejected"}[branch.admitted]
        said = ", ".join(part for part in (branch.status, loss, verdict, branch.message) if part)
        table.add_row(
            Text(branch.name),
            ProgressBar(total=1.0, completed=branch.share, width=30),
            f"{branch.share:.0%}",
            Text(said),
        )
    words = contents.answer.words if contents.answer is not None else ("no answer yet",)
    return Group(Text(contents.study, style="bold"), stages, table, *(Text(sentence) for sentence in words))
