"""The command line: the only layer that prints, prompts or exits."""

from __future__ import annotations

import signal
import sys

from trajsoup.cli.commands import overview


def main() -> None:
    """Run the command line. An interrupt while its modules are still imported ends it as later ones do."""
    if sys.argv[1:] == ["--help"]:
        sys.stdout.write(overview())
        return
    try:
        from trajsoup.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was begun\n")
        sys.exit(128 + signal.SIGINT)
    run()


__all__ = ["main"]
