"""Every command in a line. The module of a command is imported when it is asked for, so `--help` costs its own text.

name -> trajsoup.cli.NAME.NAME
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from typer.core import TyperGroup

COMMANDS = {
    "plan": "What a study costs: tokens, FLOPs, bytes, hours; what a budget buys.",
    "design": "Choose recipes to branch with, from short probes.",
    "run": "Run a study, every stage of it, or go on where it was.",
    "status": "How far a study is: stages, branches, the answer.",
    "sweep": "Score all rows of the sweeps from one read of the checkpoints.",
    "geometry": "Directions and angles of the branches, and what theory predicts.",
    "train": "Train every branch of a study to its horizon, nothing more.",
    "scan": "Find checkpoints and losses of existing runs; write a study file.",
    "doctor": "Say before any merge whether these runs will average well.",
    "merge": "Average checkpoints or runs into one ordinary model folder.",
    "verify": "Check a soup against its record and its ingredients.",
    "watch": "Follow runs of any trainer: the best merge that could be had now.",
    "export": "Write a soup as a GGUF file, with its tokenizer.",
    "push": "Put a soup on a model hub, with its card and its record.",
    "demo": "A whole study on the embedded model, in minutes.",
    "report": "Write one self-contained page, its tables and its figures.",
    "serve": "Show the report live while branches train.",
}
Command = Callable[..., None]


def command(name: str) -> Command:
    """The function of a command."""
    return getattr(import_module(f"trajsoup.cli.{name}"), name)


class OnDemand(Mapping[str, Any]):
    """The commands as typer wants them, each made when it is looked up."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Group(TyperGroup):
    """The root command. Its list of commands is the table above."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each command; none is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
