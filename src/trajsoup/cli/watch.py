"""`trajsoup watch`: "if I merged now", while the runs train."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trajsoup.cli.console import say, show_json, show_notes, show_table
from trajsoup.cli.options import Json, Metric, TokensPerStep, Validation
from trajsoup.cli.scan import RunDirs
from trajsoup.core.quantity import format_tokens

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trajsoup.core.methods.asking import Scoring
    from trajsoup.merge.branches import Branches
    from trajsoup.merge.watch import Glance


class Until(StrEnum):
    """When to end."""

    SATURATED = "saturated"  # every run has levelled off


def watch(
    run_dirs: RunDirs,
    validation: Validation = None,
    until: Annotated[Until | None, typer.Option(help="End, with code 0, when every run has levelled off.")] = None,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between looks at the folders.")] = 1.0,
    serve: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Show it as a page too, at this port of this machine.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    tokens_per_step: TokensPerStep = None,
    metric: Metric = None,
    as_json: Json = False,
) -> None:
    """Follow runs of any trainer: the best model that could be had now, whether more tokens pay, and saturation."""
    from trajsoup.merge.watch import fingerprint, glance, look
    from trajsoup.store.trainer_states import TrainerStates

    states = TrainerStates()
    seen = None
    plain = as_json or once or not sys.stdout.isatty()
    with _scores(validation or []) as scoring_of, _page(serve) as page, _screen(plain=plain) as show:
        while True:
            now = fingerprint(run_dirs)
            if now != seen:
                study = look(run_dirs, tokens_per_step=tokens_per_step, metric=metric, states=states)
                if study is not None:
                    with scoring_of(study) as scoring:
                        found = glance(study, scoring=scoring)
                    page(found)
                    show_json(dataclasses.asdict(found)) if as_json else show(found)
                    if until is Until.SATURATED and found.saturated:
                        return
                elif seen is None:
                    show_notes(["no checkpoint yet" if once else "no checkpoint yet: waiting"])
                seen = now
            if once:
                return
            time.sleep(every)


@contextlib.contextmanager
def _scores(documents: list[Path]) -> Iterator[Any]:
    """Who scores merges of a study, if anybody; scores are kept from look to look."""
    if not documents:
        yield lambda study: contextlib.nullcontext(None)
        return
    import tempfile

    from trajsoup.cli.options import limited_instructions, require_torch

    require_torch("merges are scored by running them")
    with limited_instructions(), tempfile.TemporaryDirectory(prefix="trajsoup-watch-") as folder:

        @contextlib.contextmanager
        def of(study: Branches) -> Iterator[Scoring]:
            from trajsoup.study.score.documents import scoring_on

            with scoring_on(documents, study, scratch=Path(folder)) as (scoring, _):
                yield scoring

        yield of


@contextlib.contextmanager
def _page(port: int | None) -> Iterator[Any]:
    """Who shows each look on a page, if anybody."""
    if port is None:
        yield lambda found: None
        return
    from trajsoup.report.serve import listening, serving
    from trajsoup.report.watching import WatchPage
    from trajsoup.report.writing import SERVING, require_libraries

    require_libraries(("jinja2", *SERVING))
    page, host = WatchPage(), "127.0.0.1"
    with listening(host, port) as bound, serving(lambda: page.html, bound=bound):
        show_notes([f"http://{host}:{port}/"])
        yield page.show


@contextlib.contextmanager
def _screen(*, plain: bool) -> Iterator[Any]:
    """Draw on one place of a terminal; elsewhere print each look below the one before."""
    if plain:
        yield _print
        return
    from rich.live import Live

    with Live(refresh_per_second=4, transient=False) as live:
        yield lambda found: live.update(_drawn(found))


def _rows(found: Glance) -> tuple[list[list[Any]], list[list[Any]]]:
    runs = [[r.name, r.checkpoints, format_tokens(r.position), r.newest, r.best] for r in found.runs]
    best = found.best
    lines = [[("* " if line is best else "") + line.label, line.made_of, line.loss] for line in found.lines]
    return runs, lines


def _print(found: Glance) -> None:
    runs, lines = _rows(found)
    show_table("runs", ["run", "checkpoints", found.unit.value, "newest loss", "best loss"], runs)
    if lines:
        show_table("if I merged now (* the best)", ["model", "made of", "validation loss"], lines)
    for sentence in found.words:
        say(sentence)


def _drawn(found: Glance) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    tables: list[RenderableType] = []
    for title, columns, rows in zip(
        ("runs", "if I merged now (* the best)"),
        (["run", "checkpoints", found.unit.value, "newest loss", "best loss"], ["model", "made of", "validation loss"]),
        _rows(found),
        strict=True,
    ):
        table = Table(title=title, title_justify="left")
        for name in columns:
            table.add_column(name)
        for row in rows:
            table.add_row(
                *("-" if cell is None else f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row)
            )
        tables.append(table)
    return Group(*tables, *found.words)
