"""Branches of the builtin trainer, forked off one server that has imported everything (lm/branch_server.py).

It is started with the first branch and kept as long as this process lives; it ends with this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trajsoup.errors import TrainError
from trajsoup.store.json_file import decode_json

MODULE = "trajsoup.lm.branch_server"
POLL_SECONDS = 0.05
READ_AT_IMPORT = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "ONEDNN_",
    "DNNL_",
    "TORCH",
    "PYTORCH",
    "CUDA",
    "LD_",
    "PYTHON",
    "HF_",
)
SET_BY_THE_BRANCH = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(slots=True, kw_only=True)
class ForkedBranch:
    """A branch that the server forked; a handle like subprocess.Popen, as far as branches need one."""

    pid: int
    server: Server
    returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        if self.returncode is None:
            self.returncode = self.server.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired(MODULE, timeout or 0)
            time.sleep(POLL_SECONDS)
        return code


class Server:
    """One server process and the socket to it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.terms = _terms(environment)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            # in a session of its own: an interrupt of the terminal is for this process to pass on
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno())],
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether it lives and has imported what this environment would."""
        return self._process.poll() is None and self.terms == _terms(environment)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], *, files: Sequence[int]) -> ForkedBranch:
        """Fork a branch that writes into the first of these open files and keeps the others open."""
        try:
            pid = self._ask({"arguments": list(arguments), "environment": dict(environment)}, files=files)
        except BaseException:
            self.close()  # interrupted, it may have forked one that nobody would know of
            raise
        return ForkedBranch(pid=pid, server=self)

    def ended(self, pid: int) -> int | None:
        """The exit code of a branch. A server that was killed took its branches along."""
        try:
            return self._ask({"ended": pid})
        except (OSError, EOFError):
            return -signal.SIGKILL

    def close(self) -> None:
        """End it, and with it its branches."""
        self._link.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def _ask(self, request: Mapping[str, Any], *, files: Sequence[int] = ()) -> Any:
        with self._lock:
            socket.send_fds(self._link, [json.dumps(request).encode()], files)
            answer = self._link.recv(1 << 16)
        if not answer:
            raise EOFError("the server of branches has ended")
        return decode_json(answer, int | None, where="an answer", cure="run it again", error=TrainError)  # type: ignore[arg-type]


def _terms(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(READ_AT_IMPORT) and k not in SET_BY_THE_BRANCH}


_server: Server | None = None
_starting = threading.Lock()


def fork_branch(arguments: Sequence[str], environment: Mapping[str, str], *, files: Sequence[int]) -> ForkedBranch:
    """Fork a branch off the server of this process, which is started where there is none yet."""
    global _server
    with _starting:
        if _server is None or not _server.serves(environment):
            _server = Server(environment)  # one for another environment goes on until its branches have ended
        server = _server
    return server.start(arguments, environment, files=files)


def can_fork() -> bool:
    """Only Linux ends a process with its parent, and elsewhere a fork of so much is not safe."""
    return sys.platform == "linux" and hasattr(os, "fork")
