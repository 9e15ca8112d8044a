"""The live page: a small ASGI app that only reads, and only inside one study.

    records and metrics change -> fingerprint changes -> "changed" goes out to open pages -> they fetch the new parts

GET is all it answers. It binds to this machine; bound elsewhere it wants a token. A page in another tab cannot read
it through a forged name, because only this machine's own names are accepted as host.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajsoup.errors import ReportError, StudyError
from trajsoup.report.page import LIVE_POLICY, Parts, page_parts, plotly_script, render_page
from trajsoup.report.study import open_study
from trajsoup.store.regular import opened
from trajsoup.study.records.files import FOLDER
from trajsoup.study.train.outcomes import METRICS, OUTCOME

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLL_SECONDS = 0.25
ALIVE_SECONDS = 15.0  # between two signs of life, so that proxies keep the connection
COOKIE = "trajsoup-token"
FILES = {
    ".json": "application/json",
    ".jsonl": "text/plain",
    ".yaml": "text/plain",
    ".yml": "text/plain",
    ".md": "text/plain",
    ".csv": "text/csv",
    ".log": "text/plain",
    ".txt": "text/plain",
}
MOST_BYTES = 50_000_000
PIECE_BYTES = 256 << 10
MOST_READERS = 256  # at once


def fingerprint(study: Path) -> str:
    """What the page is made from, as one short text: names, sizes and times of records and metrics."""
    files = [*(study / FOLDER).rglob("*.json")]
    for name in (METRICS, OUTCOME):
        files += (study / "branches").glob(f"*/{name}")
    found = hashlib.sha256()
    for path in sorted(files):
        try:
            status = path.stat()
        except OSError:
            continue  # replaced at this moment: the next look sees it
        found.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return found.hexdigest()[:24]


class LivePage:
    """The newest rendering of a study; made again when its files changed. Threads may share it."""

    def __init__(self, study: Path) -> None:
        self.study = study
        self._lock = threading.Lock()
        self._version = ""
        self._parts: Parts | None = None
        self._page = self._changes = b""

    def current(self, *, whole: bool) -> tuple[str, bytes]:
        """Return the version and the page (or, for a page that is open, its parts as JSON)."""
        with self._lock:
            version = fingerprint(self.study)
            if version != self._version or self._parts is None:
                records = open_study(self.study)
                self._parts = page_parts(records)
                self._page = render_page(records, parts=self._parts, live=version).encode()
                self._changes = self._parts.json().encode()
                self._version = version
            return self._version, self._page if whole else self._changes


def make_app(study: Path, *, token: str | None = None, hosts: tuple[str, ...] = LOOPBACK) -> Starlette:
    """Build the app for one study. `hosts` are the names a request may use; any, where a token is asked for."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Route

    study = study.resolve()
    live = LivePage(study)
    script = functools.cache(lambda: plotly_script().encode())

    def sent(data: bytes, media_type: str, **headers: str) -> Response:
        """In pieces, each sent before the next is taken: what slow readers wait for is in memory once, for all of them."""
        said = {"Content-Length": str(len(data)), **headers}
        return StreamingResponse(pieces(data), media_type=media_type, headers=said)

    def page(request: Request) -> Response:
        try:
            return sent(live.current(whole=True)[1], "text/html; charset=utf-8")
        except StudyError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)

    def parts(request: Request) -> Response:
        try:
            return sent(live.current(whole=False)[1], "application/json")
        except StudyError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)

    def plotly(request: Request) -> Response:
        return sent(script(), "text/javascript", **{"Cache-Control": "max-age=86400"})

    def file(request: Request) -> Response:
        path = inside(study, request.path_params["path"])
        if path is None:
            return PlainTextResponse("no such file in this study\n", status_code=404)
        return StreamingResponse(pieces_of(path), media_type=FILES[path.suffix])

    async def events(request: Request) -> Response:
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        return StreamingResponse(_changes(request, study, since), media_type="text/event-stream")

    app = Starlette(
        routes=[
            Route("/", page, methods=["GET"]),
            Route("/parts.json", parts, methods=["GET"]),
            Route("/plotly.js", plotly, methods=["GET"]),
            Route("/events", events, methods=["GET"]),
            Route("/files/{path:path}", file, methods=["GET"]),
        ],
        middleware=[
            Middleware(_Guard, token=token, hosts=hosts),
        ],
    )
    app.state.stopping = lambda: False
    app.state.live = live
    return app


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """One after another."""
    for begin in range(0, len(data), PIECE_BYTES):
        yield data[begin : begin + PIECE_BYTES]


def pieces_of(path: Path) -> Iterator[bytes]:
    """The same of a file, of which no more is sent than may be shown."""
    with contextlib.suppress(OSError), opened(path) as file:
        for _ in range(-(-MOST_BYTES // PIECE_BYTES)):
            if not (piece := file.read(PIECE_BYTES)):
                return
            yield piece


def inside(study: Path, relative: str) -> Path | None:
    """The file of that name, if it lies in the study, is no link out of it, and is of a kind to be shown."""
    if "\0" in relative or any(part.startswith(".") for part in Path(relative).parts):
        return None
    try:
        path = (study / relative).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    known = path.is_relative_to(study) and path.is_file() and path.suffix in FILES
    return path if known and path.stat().st_size <= MOST_BYTES else None


async def _changes(request: Request, study: Path, since: str) -> AsyncIterator[str]:
    waited = 0.0
    yield "retry: 1000\n\n"
    stopping = request.app.state.stopping
    while not (stopping() or await request.is_disconnected()):
        version = await asyncio.to_thread(fingerprint, study)
        if version != since:
            since = version
            waited = 0.0
            yield f"id: {version}\nevent: changed\ndata: {version}\n\n"
        elif waited >= ALIVE_SECONDS:
            waited = 0.0
            yield ": alive\n\n"
        await asyncio.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


class _Guard:
    """Asks for the token, and puts the same careful headers on every answer."""

    def __init__(self, app: Any, *, token: str | None, hosts: tuple[str, ...]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from starlette.datastructures import MutableHeaders
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse, RedirectResponse

        async def careful(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Content-Security-Policy"] = f"{LIVE_POLICY}; frame-ancestors 'none'"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
            await send(message)

        request = Request(scope)
        answer: Any = self.app
        if self.token is None and host_of(request.headers.get("host", "")) not in self.hosts:
            answer = PlainTextResponse("this page is not served under that name\n", status_code=400)
        if self.token is not None:
            if self._same(request.query_params.get("token")):
                # the token leaves the address bar, so that it is not copied with a link
                answer = RedirectResponse(f"/{request.url.path.lstrip('/')}", status_code=303)  # //host is elsewhere
                answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            elif not (self._same(request.cookies.get(COOKIE)) or self._same(_bearer(request))):
                answer = PlainTextResponse(
                    "this page needs the token that `trajsoup serve` printed: open /?token=...\n", status_code=401
                )
        await answer(scope, receive, careful)

    def _same(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), (self.token or "").encode())


def host_of(header: str) -> str:
    """The name in a Host header, without its port: `[::1]:80` is ::1."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _bearer(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value if scheme.lower() == "bearer" else None


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound, before anybody is told its address."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(128)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ReportError(
            f"cannot listen on port {port} of {host}: {error.strerror or error}: choose another --port or --host"
        ) from error
    return bound


def run_server(study: Path, *, bound: socket.socket, host: str, token: str | None) -> None:
    """Serve until interrupted."""
    import uvicorn

    app = make_app(study, token=token, hosts=(*LOOPBACK, host))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            limit_concurrency=MOST_READERS,
            log_level="warning",
            access_log=False,  # a log line would hold the token
            timeout_graceful_shutdown=2,
            server_header=False,
        )
    )
    app.state.stopping = lambda: server.should_exit  # open pages would keep the server alive
    threading.Thread(target=_warm, args=(app.state.live,), daemon=True).start()
    server.run(sockets=[bound])


@contextlib.contextmanager
def serving(html: Callable[[], str], *, bound: socket.socket) -> Iterator[None]:
    """Serve one page to this machine, as `html` gives it at the moment, while the block runs."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    app = Starlette(
        routes=[Route("/", lambda request: HTMLResponse(html()), methods=["GET"])],
        middleware=[Middleware(_Guard, token=None, hosts=LOOPBACK)],
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _warm(live: LivePage) -> None:
    """Render before anyone asks, so that the first visitor does not wait; a problem is told to whoever asks."""
    with contextlib.suppress(StudyError, OSError):
        live.current(whole=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    return host in LOOPBACK or host.startswith("127.")
