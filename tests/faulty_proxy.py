"""A loopback HTTP proxy that stumbles on purpose: 500s, answers cut short, lost or late, dropped connections.

Which request stumbles depends on the request alone, never on chance or timing: with `share` 1.0 each one does on its
first attempt, and succeeds when it is sent again. `hold` stops a request for as long as a test likes, and then drops it.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization"}
EVERY_FAULT = ("500", "short", "drop", "lost", "slow")
SECONDS = 20  # no request takes longer


class FaultyProxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, target: tuple[str, int]) -> None:
        self.target, self.lock = target, threading.Lock()
        self.share, self.kinds = 0.0, EVERY_FAULT
        self.attempts: Counter[tuple[str, ...]] = Counter()
        self.faults: Counter[str] = Counter()
        self.requests: list[tuple[str, str, str | None]] = []
        self.hold: Callable[[str, str], bool] = lambda method, path: False
        self.held, self.released = threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fault(self, method: str, path: str, ranges: str | None) -> str | None:
        """What goes wrong with this request: its first attempt only."""
        key = (method, re.sub(r"uploadId=[^&]*", "", path), ranges or "")
        number = zlib.crc32("\n".join(key).encode())
        with self.lock:
            self.requests.append((method, path, ranges))
            self.attempts[key] += 1
            if self.attempts[key] > 1 or number % 1000 >= 1000 * self.share:
                return None
            kind = self.kinds[number // 1000 % len(self.kinds)]
            if kind == "short" and method != "GET":
                kind = "500"
            if kind == "lost" and "uploads" in path:
                kind = "drop"  # a lost answer to "begin" leaves an upload that only the store knows
            self.faults[kind] += 1
            return kind

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = SECONDS
    server: FaultyProxy

    def _pass_on(self) -> None:
        body = self._body()
        kind = self.server.fault(self.command, self.path, self.headers.get("Range"))
        if self.server.hold(self.command, self.path):
            self.server.held.set()
            self.server.released.wait(SECONDS)
            self.close_connection = True
            return
        if kind == "drop":
            self.close_connection = True
            return
        if kind == "500":
            answer = b"<Error><Code>InternalError</Code><Message>on purpose</Message></Error>"
            self.send_response(500)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)
            return
        if kind == "slow":
            time.sleep(0.05)
        upstream = http.client.HTTPConnection(*self.server.target, timeout=SECONDS)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP | {"expect"}}
        upstream.request(self.command, self.path, body=body, headers=headers)
        response = upstream.getresponse()
        data = response.read()
        upstream.close()
        if kind == "lost":
            self.close_connection = True
            return
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP | {"content-length", "date", "server"}:
                self.send_header(name, value)
        self.send_header("Content-Length", response.getheader("Content-Length") or str(len(data)))
        self.end_headers()
        if kind == "short":
            data, self.close_connection = data[: len(data) // 2], True
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *args) -> None:
        pass


@contextlib.contextmanager
def faulty_proxy(target: tuple[str, int]) -> Iterator[FaultyProxy]:
    with FaultyProxy(target) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.released.set()
            proxy.shutdown()
            thread.join(SECONDS)
