"""The `trajsoup` command: one module per subcommand, and the one place where errors become messages and exit codes.

Exit code 0 is success, 1 a problem the user can mend (one message, no traceback), 2 wrong usage, 130 an interrupt.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable

import typer

from trajsoup import __version__
from trajsoup.cli.console import say
from trajsoup.cli.demo import demo
from trajsoup.cli.design import design
from trajsoup.cli.doctor import doctor
from trajsoup.cli.export import export
from trajsoup.cli.geometry import geometry
from trajsoup.cli.merge import merge
from trajsoup.cli.plan import plan
from trajsoup.cli.push import push
from trajsoup.cli.report import report
from trajsoup.cli.run import run
from trajsoup.cli.scan import scan
from trajsoup.cli.serve import serve
from trajsoup.cli.status import status
from trajsoup.cli.sweep import sweep
from trajsoup.cli.train import train
from trajsoup.cli.verify import verify
from trajsoup.cli.watch import watch
from trajsoup.errors import TrajsoupError, install
from trajsoup.store.shown import shown_message

app = typer.Typer(
    name="trajsoup",
    help="Average the best checkpoints of several training branches into one better model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


_GOES_ON = "what was finished is kept; run the same command again to go on"
_NOTHING = "nothing was written; run the same command again"
_KEPT = {
    command.__name__: _NOTHING for command in (scan, doctor, merge, verify, watch, export, push)
}  # they begin anew


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
            say(f"interrupted: {_KEPT.get(command.__name__, _GOES_ON)}", err=True)
            raise typer.Exit(130) from interrupt

    return run


for command in (
    plan,
    design,
    run,
    status,
    sweep,
    geometry,
    train,
    scan,
    doctor,
    merge,
    verify,
    watch,
    export,
    push,
    demo,
    report,
    serve,
):
    app.command()(_translated(command))


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
