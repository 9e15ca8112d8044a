"""Run the command line inside the test's process, and hold on to what it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from trajsoup.cli.app import app


@dataclass(frozen=True, slots=True)
class Printed:
    """The end of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What `--json` printed, read as strictly as any other program would."""
        return json.loads(self.out, parse_constant=_refuse)


def trajsoup(*args: str | Path | int | float) -> Printed:
    """Run `trajsoup ARGS`. An exception that no message was made of fails the test."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Printed(result.exit_code, result.stdout, result.stderr)


def succeeds(*args: str | Path | int | float) -> Printed:
    """Run `trajsoup ARGS`, which must work."""
    done = trajsoup(*args)
    assert done.code == 0, done.err
    return done


def refused(*args: str | Path | int | float) -> str:
    """Run `trajsoup ARGS`, which must end with 1 and a message of one line; return the message."""
    done = trajsoup(*args)
    assert done.code == 1, done
    lines = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, done.err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in done.err
    return lines[0].removeprefix("error: ")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
