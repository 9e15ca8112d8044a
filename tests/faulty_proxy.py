"""A loopback HTTP proxy that stumbles on purpose: 500s, answers cut short, dropped connections, slow answers."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization"}


class FaultyProxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, target: tuple[str, int], *, rate: float, kinds: tuple[str, ...], seed: int = 0) -> None:
        self.target, self.rate, self.kinds = target, rate, kinds
        self.chance, self.lock = random.Random(seed), threading.Lock()
        self.faults: Counter[str] = Counter()
        self.requests: list[tuple[str, str, str | None]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fault(self) -> str | None:
        with self.lock:
            kind = self.chance.choice(self.kinds) if self.kinds and self.chance.random() < self.rate else None
            if kind:
                self.faults[kind] += 1
            return kind

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultyProxy

    def _pass_on(self) -> None:
        body = self._body()
        with self.server.lock:
            self.server.requests.append((self.command, self.path, self.headers.get("Range")))
        kind = self.server.fault()
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
            time.sleep(0.3)
        upstream = http.client.HTTPConnection(*self.server.target, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        upstream.request(self.command, self.path, body=body, headers=headers)
        response = upstream.getresponse()
        data = response.read()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP | {"content-length", "date", "server"}:
                self.send_header(name, value)
        self.send_header("Content-Length", response.getheader("Content-Length") or str(len(data)))
        self.end_headers()
        if kind == "short" and self.command == "GET":
            data, self.close_connection = data[: len(data) // 2], True
        self.wfile.write(data)
        upstream.close()

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
def faulty_proxy(
    target: tuple[str, int], *, rate: float, kinds: tuple[str, ...], seed: int = 0
) -> Iterator[FaultyProxy]:
    with FaultyProxy(target, rate=rate, kinds=kinds, seed=seed) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()
