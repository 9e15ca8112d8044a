"""Fork branches off a process that has imported everything: python -m trajsoup.lm.branch_server SOCKET.

    {arguments, environment} with log and lock -> fork -> branch_process.main     replies: the process's number
    {ended: number}                                                               replies: its exit code, or null

Importing torch and transformers takes longer than training a small branch; here it happens once for all branches of a
study. Nothing is computed before a fork, so no thread and no device exists that a child could miss. The end of the socket
is the end of the server, and with it of its branches: the kernel ends them with their parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import traceback
from typing import Any, NoReturn

from trajsoup.errors import TrainError
from trajsoup.store.json_file import decode_json

MESSAGE_BYTES = 1 << 20


def main(arguments: list[str]) -> int:
    """Serve until the other end of the socket closes."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers.models.llama.modeling_llama  # noqa: F401  # as good as any: it brings what all models share

    import trajsoup.lm.train  # noqa: F401

    with socket.socket(fileno=int(arguments[0])) as link:
        while True:
            message, files, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 2)
            if not message:
                return 0
            request = decode_json(message, dict[str, Any], where="a request", cure="restart", error=TrainError)
            answer = _ended(request["ended"]) if "ended" in request else _fork(request, link, files)
            for file in files:
                os.close(file)
            link.send(json.dumps(answer).encode())


def _ended(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _fork(request: dict[str, Any], link: socket.socket, files: list[int]) -> int:
    """Start a branch; it leads a session of its own before this returns."""
    ready, leads = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        link.close()
        os.close(ready)
        os.setsid()
        os.close(leads)
        _become(request, log=files[0], parent=server)
    os.close(leads)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _become(request: dict[str, Any], *, log: int, parent: int) -> NoReturn:
    from trajsoup.lm.branch_process import end_with_parent
    from trajsoup.lm.branch_process import main as train

    code = 1
    try:
        for standard in (1, 2):
            os.dup2(log, standard)
        os.environ.clear()
        os.environ.update(request["environment"])
        end_with_parent(parent)
        code = train(request["arguments"])
    except BaseException:  # noqa: BLE001  # a fork never returns into its server
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
