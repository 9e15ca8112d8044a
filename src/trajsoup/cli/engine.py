"""`--engine` and `--address`: where the heavy work runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trajsoup.engine.executor import Executor


class Engine(StrEnum):
    """Where tasks run."""

    LOCAL = "local"
    RAY = "ray"


EngineOption = Annotated[Engine, typer.Option("--engine", help="This machine, or a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster to join; default: one started on this machine.", show_default=False),
]


@contextlib.contextmanager
def chosen_executor(engine: Engine, address: str | None) -> Iterator[Executor | None]:
    """Yield the executor that the options name; None: the command itself does the work, with its own threads."""
    if engine is Engine.LOCAL:
        if address is not None:
            raise typer.BadParameter("belongs to --engine ray", param_hint="--address")
        yield None
        return
    from trajsoup.engine.ray_executor import ray_executor

    path = os.pathsep.join(p for p in sys.path if p)  # workers must find the package as this process did
    with ray_executor(address=address, environment={"PYTHONPATH": path}) as executor:
        yield executor
