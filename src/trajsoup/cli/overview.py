"""The overview of a study in a terminal, live with `trajsoup status --watch`: what the page shows at its top."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from trajsoup.report.contents import Branch, Contents

SECONDS = 1.0
SIGNS = {"done": ("●", "green"), "running": ("◐", "bold yellow"), "waiting": ("○", "dim")}
VERDICTS = {"yes": "bold green", "no": "bold red"}


def watch(folder: Path) -> None:
    """Show the overview until the study is done or the user stops. A study that has not begun yet is waited for."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from trajsoup.report.reading import read_contents
    from trajsoup.report.serve import fingerprint
    from trajsoup.study.records.files import FOLDER

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.print(overview(read_contents(folder)))
        return
    waiting = Text(f"{folder} has no records yet: waiting for `trajsoup run`", style="dim")
    # Ctrl-C is how one stops to look: the study goes on
    with contextlib.suppress(KeyboardInterrupt), Live(waiting, console=console, auto_refresh=False) as live:
        live.refresh()
        seen, running = "", True
        while running:
            if (folder / FOLDER).is_dir() and (now := fingerprint(folder)) != seen:
                seen = now
                contents = read_contents(folder)
                running = contents.running
                live.update(overview(contents), refresh=True)
            if running:
                time.sleep(SECONDS)


def overview(contents: Contents) -> RenderableType:
    """Stages, branches with their progress, and the answer as soon as there is one."""
    from rich.console import Group
    from rich.text import Text

    from trajsoup.report.figures.style import difference_text
    from trajsoup.report.glance import lines

    stages = Text()
    for stage in contents.stages:
        sign, style = SIGNS.get(stage.status, ("?", ""))
        stages.append(f"{sign} {stage.name}  ", style=style)
    parts: list[RenderableType] = [Text(contents.study, style="bold"), stages]
    if contents.branches:
        parts += [Text(), _branches(contents.branches)]
    parts.append(Text())
    found = lines(contents)
    for line in found:
        one = line.difference
        said = Text(f"{line.verdict:<12}", style=VERDICTS.get(line.verdict, "bold yellow"))
        said.append(f"{difference_text(one.value, one.rank_by):<15}", style="bold")
        said.append(one.question or f"{one.label} minus {one.reference}", style="not bold default")
        parts.append(said)
    if contents.answer is not None and contents.answer.folder is not None:
        parts.append(Text(f"the model to take: {contents.folder}/{contents.answer.folder}"))
    if not found:
        parts.append(Text("no answer yet" if contents.running else "this study has no soup to compare", style="dim"))
    return Group(*parts)


def _branches(branches: tuple[Branch, ...]) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from trajsoup.report.figures.style import tokens_text

    table = Table(box=None, pad_edge=False, show_header=False)
    for column in range(6):
        table.add_column(justify="right" if column in (2, 3) else "left", no_wrap=column < 5, overflow="ellipsis")
    for branch in branches:
        loss = f"loss {branch.losses[-1][1]:.4f}" if branch.losses else ""
        verdict = {None: "", True: "admitted", False: "rejected"}[branch.admitted]
        said = ", ".join(part for part in (branch.status, verdict, _left(branch), branch.message) if part)
        style = "red" if branch.status in ("failed", "diverged") or branch.admitted is False else ""
        table.add_row(
            Text(branch.name),
            ProgressBar(total=1.0, completed=branch.share, width=24),
            f"{branch.share:.0%}",
            f"{tokens_text(branch.tokens)} tokens",
            loss,
            Text(said, style=style),
        )
    return table


def _left(branch: Branch) -> str:
    """How long a running branch still takes at its speed."""
    if not branch.tokens_per_second or branch.horizon is None:
        return ""
    seconds = round((branch.horizon - branch.tokens) / branch.tokens_per_second)
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    return f"{hours} h {minutes} min left" if hours else f"{minutes} min {seconds % 60} s left"
