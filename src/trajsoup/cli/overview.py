"""The overview of a study in a terminal, live with `trajsoup status --watch`: what the page shows at its top."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from trajsoup.report.progress import BranchState
    from trajsoup.study.records.files import Records

SECONDS = 1.0
SIGNS = {"done": ("●", "green"), "running": ("◐", "bold yellow"), "waiting": ("○", "dim")}
VERDICTS = {"yes": "bold green", "no": "bold red"}


def watch(folder: Path) -> None:
    """Show the overview until the study is done or the user stops. A study that has not begun yet is waited for."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from trajsoup.report.progress import is_running, stage_states
    from trajsoup.report.serve import fingerprint
    from trajsoup.report.study import open_study
    from trajsoup.study.records.files import FOLDER

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.print(overview(open_study(folder)))
        return
    waiting = Text(f"{folder} has no records yet: waiting for `trajsoup run`", style="dim")
    # Ctrl-C is how one stops to look: the study goes on
    with contextlib.suppress(KeyboardInterrupt), Live(waiting, console=console, auto_refresh=False) as live:
        live.refresh()
        seen, running = "", True
        while running:
            if (folder / FOLDER).is_dir() and (now := fingerprint(folder)) != seen:
                seen = now
                records = open_study(folder)
                running = is_running(stage_states(records, ()))
                live.update(overview(records), refresh=True)
            if running:
                time.sleep(SECONDS)


def overview(records: Records) -> RenderableType:
    """Stages, branches with their progress, and the answer as soon as there is one."""
    from rich.console import Group
    from rich.text import Text

    from trajsoup.report.page import study_title
    from trajsoup.report.progress import branch_states, is_running, stage_states
    from trajsoup.report.sections.answer import read_answer, why_no_answer
    from trajsoup.report.style import difference_text
    from trajsoup.study.records.screen import ScreenRecord

    branches = branch_states(records)
    states = stage_states(records, branches)
    stages = Text()
    for stage in states:
        sign, style = SIGNS.get(stage.state, ("?", ""))
        stages.append(f"{sign} {stage.stage}  ", style=style)
    parts: list[RenderableType] = [Text(study_title(records), style="bold"), stages]
    if branches:
        screen = records.read(ScreenRecord)
        words = {} if screen is None else {v.branch: v.word for v in screen.verdicts}
        parts += [Text(), _branches(branches, words)]
    parts.append(Text())
    answer = read_answer(records)
    if answer is None:
        why = why_no_answer(records)
        none = "this study has no soup to compare" + ("" if why is None else f": {why}")
        return Group(*parts, Text("no answer yet" if is_running(states) else none, style="dim"))
    for line in answer.lines:
        one = line.compared
        said = Text(f"{line.verdict:<12}", style=VERDICTS.get(line.verdict, "bold yellow"))
        said.append(f"{difference_text(one.difference, one.signal):<15}", style="bold")
        said.append(one.question, style="not bold default")
        parts.append(said)
    if answer.shipped is not None:
        parts.append(
            Text(
                f"the model to take: {records.study.resolve().name}/{answer.record.soup_folder} ({answer.shipped.label})"
            )
        )
    return Group(*parts)


def _branches(branches: tuple[BranchState, ...], verdicts: Mapping[str, str]) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from trajsoup.report.style import tokens_text

    table = Table(box=None, pad_edge=False, show_header=False)
    for column in range(6):
        table.add_column(justify="right" if column in (2, 3) else "left", no_wrap=column < 5, overflow="ellipsis")
    for branch in branches:
        loss = f"loss {branch.losses[-1][1]:.4f}" if branch.losses else ""
        verdict = verdicts.get(branch.name)
        said = ", ".join(part for part in (branch.status, verdict, _left(branch), branch.message) if part)
        style = "red" if branch.broken or verdict == "rejected" else ""
        table.add_row(
            Text(branch.name),
            ProgressBar(total=1.0, completed=branch.share, width=24),
            f"{branch.share:.0%}",
            f"{tokens_text(branch.tokens)} tokens",
            loss,
            Text(said, style=style),
        )
    return table


def _left(branch: BranchState) -> str:
    """How long a running branch still takes at its speed."""
    if not branch.tokens_per_second or branch.horizon is None:
        return ""
    seconds = round((branch.horizon - branch.tokens) / branch.tokens_per_second)
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    return f"{hours} h {minutes} min left" if hours else f"{minutes} min {seconds % 60} s left"
