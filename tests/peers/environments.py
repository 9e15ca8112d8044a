"""Environments of other tools, each its own: where their Python is, and how a script of theirs is run."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Environment:
    """`.venv-NAME` of the Makefile, or wherever NAME_PYTHON says its Python is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.python = Path(os.environ.get(f"{name.upper()}_PYTHON", ROOT / f".venv-{name}" / "bin" / "python"))

    def marks(self) -> list[pytest.MarkDecorator]:
        """No limit of time of its own: on a busy machine the imports alone take minutes."""
        missing = f"{self.name} is not installed: `make test-peers`"
        return [pytest.mark.peers, pytest.mark.timeout(0), pytest.mark.skipif(not self.python.exists(), reason=missing)]

    def run(self, script: str, *args: object) -> None:
        """Run a script of this folder, which may import what `tests` has that needs torch alone."""
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get(f"{self.name.upper()}_PATH"))))
        command = [self.python, Path(__file__).with_name(script), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
        assert done.returncode == 0, done.stderr[-3000:]
