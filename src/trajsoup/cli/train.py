"""`trajsoup train`: train the branches of a study, or go on where they were stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trajsoup.cli.console import say, show_json, show_notes, show_table
from trajsoup.cli.options import Address, Engine, EngineOption, Jobs, Json, Study, chosen_executor, study_file

if TYPE_CHECKING:
    from trajsoup.study.train.branches import OnProgress, Stage
    from trajsoup.study.train.outcomes import Progress

PLAIN_SECONDS = 15  # between two lines where the display is no terminal


def train(
    study: Study,
    jobs: Jobs = None,
    branch: Annotated[
        list[str] | None, typer.Option(help="Train this branch only; repeat for more.", show_default=False)
    ] = None,
    fork_point_only: Annotated[
        bool, typer.Option("--fork-point-only", help="Prepare corpus and fork point; train no branch.")
    ] = False,
    engine: EngineOption = Engine.LOCAL,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Train every branch to its horizon. What is finished is skipped; what was killed resumes bit for bit."""
    from trajsoup.errors import TrainError
    from trajsoup.study.file.study import load_training_study
    from trajsoup.study.train.branches import train_study

    loaded = load_training_study(study_file(study))
    with live() as on_progress, chosen_executor(engine, address) as executor:
        trained = train_study(
            loaded,
            jobs=jobs,
            branches=[] if fork_point_only else branch,
            on_progress=on_progress,
            executor=executor,
        )
    show_notes(trained.plan.notes)
    if as_json:
        branches = {
            o.branch: {**dataclasses.asdict(o), "folder": str(loaded.output / "branches" / o.branch)}
            for o in trained.outcomes
        }
        show_json({"fork_point": str(trained.fork_point), "branches": branches})
    else:
        show_table(
            f"branches of {study}",
            ["branch", "status", "tokens", "checkpoints in"],
            [
                [o.branch, o.status.value, o.tokens, str(loaded.output / "branches" / o.branch)]
                for o in trained.outcomes
            ],
        )
    if trained.failed:
        reasons = "; ".join(f"{o.branch} {o.status.value}: {o.message}" for o in trained.failed)
        raise TrainError(f"{len(trained.failed)} of {len(trained.outcomes)} branches did not finish. {reasons}")


@contextlib.contextmanager
def live() -> Iterator[OnProgress]:
    """Bars on a terminal; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[tuple[str, str], object] = {}

        def update(stage: Stage, progress: Sequence[Progress]) -> None:
            for p in progress:
                key = (stage.value, p.branch)
                if key not in tasks:
                    tasks[key] = bars.add_task(p.branch, total=p.horizon, text="")
                bars.update(tasks[key], completed=p.tokens, text=_text(p))  # type: ignore[arg-type]

        yield update


class _Lines:
    """Progress for logs: one line for each running branch, not too often."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, stage: Stage, progress: Sequence[Progress]) -> None:
        now = time.monotonic()
        if now - self._last < PLAIN_SECONDS:
            return
        self._last = now
        for p in progress:
            if p.running:
                say(f"{p.branch}: {_text(p)}", err=True)


def _text(p: Progress) -> str:
    from trajsoup.core.quantity import format_tokens

    parts = [f"{format_tokens(p.tokens)} of {format_tokens(p.horizon)} tokens"]
    if p.train_loss is not None:
        parts.append(f"loss {p.train_loss:.4f}")
    if p.running and p.tokens_per_second:
        parts.append(f"{p.tokens_per_second:,.0f} tokens/s")
        left = int(p.seconds_left or 0)
        parts.append(f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left")
    return ", ".join(parts)
