"""Start a command that is asked to stop when its starter dies: python tether.py COMMAND...

A killed worker cannot end the training it started, and its successor trains the same branch in the same folder. So the
kernel is told beforehand; the command takes this process's place and keeps the promise. Needs no package.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of prctl(2)


def main(words: list[str]) -> None:
    """Become the command. SIGTERM lets a launcher such as torchrun end its own processes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(os.environ.get("TRAJSOUP_PARENT", os.getppid())):
            sys.exit(1)  # the starter died before this line
    os.execvp(words[0], words)


if __name__ == "__main__":
    main(sys.argv[1:])
