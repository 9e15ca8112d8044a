"""A place in an object store: any URL that fsspec knows (s3://, gs://, hf://, memory://), with the face of a Path.

    text -> place() -> Path | RemotePath

Only what reading a checkpoint needs is here; every request is retried. fsspec comes with the extra [cloud] and is
imported when the first URL is used.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from trajsoup.errors import StoreError, install
from trajsoup.store.retry import ShortAnswerError, retrying
from trajsoup.store.s3_ranges import range_reader

SCHEMES = frozenset(  # stores of objects; fsspec knows more, some of which open what a URL names on this machine
    {"s3", "s3a", "gs", "gcs", "hf", "az", "abfs", "abfss", "adl", "oci", "oss", "http", "https", "webhdfs", "memory"}
)
_URL = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_SECRET = re.compile(r"://[^/]*:[^/]*@|[?&][^=]*(signature|token|secret|password|sig)=", re.IGNORECASE)
LONGEST_NAME = 255  # bytes, on nearly every file system
CHUNK_BYTES = 8 << 20  # one request of a sequential read
CONNECT_SECONDS = 5
ANSWER_SECONDS = 30  # that a store may be silent
CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """What a store knows of an object."""

    st_size: int
    version: str  # to tell an untouched object by: its ETag, or else all that the store says


@dataclass(frozen=True, order=True)
class RemotePath:
    """A URL. Equal URLs are equal paths; nothing is asked of the store until a method needs it."""

    url: str

    @property
    def name(self) -> str:
        """The last part."""
        return posixpath.basename(self._split[1])

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> RemotePath:
        """One level up."""
        return RemotePath(self._split[0] + posixpath.dirname(self._split[1]))

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """Every level up, nearest first."""
        found: list[RemotePath] = []
        here = self
        while here.parent != here and here.parent.name:
            here = here.parent
            found.append(here)
        return tuple(found)

    def __truediv__(self, name: str | Path) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    def resolve(self) -> RemotePath:
        """The URL without `.` and `..`."""
        return RemotePath(self._split[0] + posixpath.normpath(self._split[1]))

    def relative_to(self, other: RemotePath) -> Path:
        """What follows `other` in this URL."""
        if not self.url.startswith(other.url + "/"):
            raise ValueError(f"{self} is not below {other}")
        return Path(self.url[len(other.url) + 1 :])

    def exists(self) -> bool:
        """Whether there is an object here, or one below."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether there is an object here."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Whether there is an object below."""
        return self._kind() == "directory"

    def stat(self) -> RemoteStat:
        """Size and version, as they were when they were first asked for."""
        return self._stat

    @property
    def version(self) -> str:
        """The version now."""
        return RemotePath(self.url).stat().version

    def iterdir(self) -> Iterator[RemotePath]:
        """What lies directly here."""
        for entry in self._ask(lambda: self.filesystem.ls(self.key, detail=True, refresh=True)):
            name = posixpath.basename(entry["name"].rstrip("/"))
            if name and entry["name"].rstrip("/") != self.key.rstrip("/"):
                yield self / name

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Objects directly here whose names match."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Objects at any depth whose names match."""
        for parent, _, names in self.walk():
            yield from (parent / name for name in names if fnmatchcase(name, pattern))

    def walk(self) -> Iterator[tuple[RemotePath, list[str], list[str]]]:
        """Like os.walk, top down; the caller may shorten the list of folders."""
        entries = self._ask(lambda: self.filesystem.ls(self.key, detail=True, refresh=True))
        inside = [e for e in entries if e["name"].rstrip("/") != self.key.rstrip("/")]
        names = {
            kind: [posixpath.basename(e["name"].rstrip("/")) for e in inside if e["type"] == kind] for kind in _KINDS
        }
        yield self, names["directory"], names["file"]
        for name in names["directory"]:
            yield from (self / name).walk()

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, all of them."""

        exactly = {"cache_type": "none"} if self.url.startswith("hf://") else {}  # it would read ahead, for nobody

        def ask() -> bytes:
            data: bytes = self.filesystem.cat_file(self.key, start=start, end=end, **exactly)
            if len(data) != end - start:
                raise ShortAnswerError(f"asked for {end - start:,} bytes at {start:,}, got {len(data):,}")
            return data

        return retrying(ask, what=f"reading {self}") if end > start else b""

    def read_into(self, view: memoryview, *, start: int) -> None:
        """Fill `view` with the bytes from `start` on."""
        reader = range_reader(self.filesystem)
        if reader is None:
            view[:] = self.read_range(start, start + len(view))
            return

        def ask() -> None:
            done = reader.read_into(view, self.key, start=start)
            if done != len(view):
                raise ShortAnswerError(f"asked for {len(view):,} bytes at {start:,}, got {done:,}")

        retrying(ask, what=f"reading {self}")

    def read_bytes(self) -> bytes:
        """The whole object."""
        return self.read_range(0, self.stat().st_size)

    def write_bytes(self, data: bytes) -> None:
        """Put the object whole, in place of what is there."""
        retrying(lambda: self.filesystem.pipe_file(self.key, data), what=f"writing {self}")

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole object as text."""
        return self.read_bytes().decode(encoding, errors)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """A stream of the object, read by ranges."""
        if mode != "rb":
            raise StoreError(f"cannot open {self} with mode {mode!r}: objects are written whole")
        return io.BufferedReader(_Stream(self), CHUNK_BYTES)

    @property
    def key(self) -> str:
        """The path as fsspec wants it."""
        return self._opened[1]

    @property
    def filesystem(self) -> Any:
        """The fsspec file system."""
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """The file system, shared by all threads: fsspec would open one for each, with connections of its own."""
        key = (os.getpid(), *self.url.split("/", 3)[:3])
        with _LOCK:
            if key not in _FILESYSTEMS:
                _FILESYSTEMS[key] = self._connect()
            filesystem = _FILESYSTEMS[key]
        return filesystem, filesystem._strip_protocol(self.url)

    def _connect(self) -> Any:
        _require_network(self.url)
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise StoreError(f"{self} needs fsspec: {install('cloud')}") from error
        try:
            return _only_our_retries(url_to_fs(self.url, use_listings_cache=False, **_client_options(self.url))[0])
        except (ImportError, ValueError) as error:
            raise StoreError(f"cannot use {self}: {error}: {install('cloud')}, or check the URL") from error

    @cached_property
    def _stat(self) -> RemoteStat:
        found = self._ask(lambda: self.filesystem.info(self.key))
        return RemoteStat(int(found["size"]), str(found.get("ETag") or sorted(found.items(), key=str)))

    @property
    def _split(self) -> tuple[str, str]:
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://", rest.rstrip("/")

    def _kind(self) -> str | None:
        try:
            return self._ask(lambda: self.filesystem.info(self.key))["type"]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _ask(self, question: Any) -> Any:
        try:
            return retrying(question, what=f"asking for {self}")
        except PermissionError as error:
            raise StoreError(f"no access to {self} ({error}): check the credentials and their rights") from error

    def __getstate__(self) -> str:
        return self.url  # a connection cannot travel to another process

    def __setstate__(self, url: str) -> None:
        object.__setattr__(self, "url", url)


Place = Path | RemotePath
_FILESYSTEMS: dict[tuple[object, ...], Any] = {}
_LOCK = threading.Lock()
_HOSTS = {  # scheme -> where its store is, and the variable that names another place
    "gs": ("storage.googleapis.com", "STORAGE_EMULATOR_HOST"),
    "gcs": ("storage.googleapis.com", "STORAGE_EMULATOR_HOST"),
    "hf": ("huggingface.co", "HF_ENDPOINT"),
}
_KINDS = ("directory", "file")


def is_url(text: object) -> bool:
    """Whether a text names an object store."""
    return bool(_URL.match(str(text)))


def place(text: Place | str) -> Place:
    """What a user wrote: a local path, or a URL. `file://` is local."""
    if isinstance(text, Path | RemotePath):
        return text
    if "\0" in text:
        raise StoreError(f"{text[:100]!r} holds a NUL, which no name may: correct it")
    if is_url(text) and not text.startswith("file://") and _SECRET.search(text):
        raise StoreError(
            f"a URL of {text.split('://')[0]}:// holds a password or a signature, which records would keep: leave it out "
            "and give credentials as the store's own tools read them"
        )
    if is_url(text) and not text.startswith("file://"):
        scheme = text.split("://")[0].lower()
        if scheme not in SCHEMES or "::" in text:
            what = (
                "is a chain of URLs"
                if "::" in text
                else f"is no store that is read here ({', '.join(sorted(SCHEMES))})"
            )
            raise StoreError(f"{text[:200]!r} {what}: name the folder in its store, or copy it here")
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    if is_url(text):
        return RemotePath(text.rstrip("/"))
    if len(text) > LONGEST_NAME and any(len(os.fsencode(part)) > LONGEST_NAME for part in text.split("/")):
        raise StoreError(f"{text[:100]!r}... has more characters than the name of a file may: correct it")
    return Path(text)


def _require_network(url: str) -> None:
    """Say at once that a store's host has no address here: its client would try for minutes and fill the screen."""
    host, elsewhere = _HOSTS.get(url.split("://")[0].lower(), (None, ""))
    if host is None or any(os.environ.get(name) for name in (elsewhere, "HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        raise StoreError(f"cannot reach {url}: {host} is not found ({error}): check the network") from error


def _client_options(url: str) -> dict[str, Any]:
    """What an S3 client is told, besides what the user's own fsspec settings say: to give up soon and only once.

    botocore tries five times and s3fs five times more. Under our own retries that made 200 attempts with waits between
    them, hours in which nothing seemed to happen.
    """
    if url.split("://")[0].lower() not in ("s3", "s3a"):
        return {}
    from fsspec.config import conf

    settings = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": ANSWER_SECONDS,
        "max_pool_connections": CONNECTIONS,
        "retries": {"mode": "standard", "total_max_attempts": 1},
    }
    return {"config_kwargs": {**settings, **conf.get("s3", {}).get("config_kwargs", {})}}


def _only_our_retries(filesystem: Any) -> Any:
    if "s3" in filesystem.protocol:
        filesystem.retries = 1
    return filesystem


def forget_connections() -> None:
    """Connect anew from now on: credentials or endpoint have changed."""
    with _LOCK:
        _FILESYSTEMS.clear()


def require_allowed(text: str, *, named_in: Place, allowed: Sequence[str] = ()) -> None:
    """Refuse a URL that a file names and its reader did not: who sends a file must not choose what is contacted.

    In the same store as the file itself, or below one of `allowed`, it may.
    """
    if not is_url(text) or text.startswith("file://"):
        return
    own = [_store(named_in.url)] if isinstance(named_in, RemotePath) else []
    if not any(f"{text.rstrip('/')}/".startswith(f"{prefix.rstrip('/')}/") for prefix in (*own, *allowed)):
        raise StoreError(
            f"{named_in} names {text[:200]}, which is contacted only if you say so: pass --allow-url {_store(text)[:100]}"
        )


def _store(url: str) -> str:
    """Scheme and bucket."""
    return "/".join(url.split("/", 3)[:3])


def absolute(text: Place | str) -> str:
    """The one name of a place, whatever the working folder."""
    here = place(text)
    return here.resolve().url if isinstance(here, RemotePath) else os.path.abspath(here)


class _Stream(io.RawIOBase):
    def __init__(self, path: RemotePath) -> None:
        self.path, self.size, self.position = path, path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def readinto(self, buffer: Any) -> int:
        data = self.path.read_range(self.position, min(self.position + len(buffer), self.size))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)
