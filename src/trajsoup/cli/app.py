"""The `trajsoup` command: a module for each subcommand; the one place where errors become messages and exit codes.

Exit code 0 is success, 1 a problem the user can mend (one message, no traceback), 2 wrong usage, 130 an interrupt.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from trajsoup import __version__
from trajsoup.cli.commands import COMMANDS, overview
from trajsoup.cli.console import say
from trajsoup.errors import TrajsoupError, install
from trajsoup.store.shown import shown_message


class _OnDemand(Mapping[str, Any]):
    """The commands as typer wants them; the module of each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        try:
            function = getattr(import_module(f"trajsoup.cli.{name}"), name)
        except KeyboardInterrupt as interrupt:
            say("interrupted: nothing was begun", err=True)
            raise typer.Exit(130) from interrupt
        alone.command(name)(_translated(function))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Root(TyperGroup):
    """Its help is that which is printed without typer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": None})
        self.commands = _OnDemand()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(overview())


app = typer.Typer(
    cls=_Root,
    name="trajsoup",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


_GOES_ON = "what was finished is kept; run the same command again to go on"
_NOTHING = "nothing was written; run the same command again"
_BEGIN_ANEW = frozenset({"scan", "doctor", "merge", "verify", "watch", "export", "push"})


def _translated(command: Callable[..., None]) -> Callable[..., None]:
    """Turn what a command raises into a message and an exit code. Its signature, which typer reads, stays."""

    @functools.wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except (TrajsoupError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            say(f"error: {shown_message(error)}", err=True)
            raise typer.Exit(1) from error
        except ImportError as error:
            say(f"error: {shown_message(error)}: install it with {install('train')}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as interrupt:
            say(f"interrupted: {_NOTHING if command.__name__ in _BEGIN_ANEW else _GOES_ON}", err=True)
            raise typer.Exit(130) from interrupt

    return run


def _version(value: bool) -> None:
    if value:
        say(f"trajsoup {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Show the version.", is_eager=True, callback=_version),
) -> None:
    pass


def main() -> None:
    """Run the command line. A request to end (SIGTERM) is an interrupt: branches are stopped, outputs cleaned up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
