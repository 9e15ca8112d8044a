"""Keep what other programs print off the terminal, also what processes print that are started meanwhile."""

from __future__ import annotations

import contextlib
import os
import sys


@contextlib.contextmanager
def silenced():
    """Send file descriptors 1 and 2 nowhere for the time of the block. A node's end makes Ray print pages of its state."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in enumerate(kept, start=1):
            os.dup2(saved, number)
            os.close(saved)
        os.close(nowhere)
