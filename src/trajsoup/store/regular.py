"""Regular files, opened for reading in one place: a pipe or a device is refused, neither waited for nor read without end.

    open_regular(path) -> descriptor        opened(path) -> stream        read_small(path) -> bytes, up to a limit

What is wrong with a file is an OSError as from the system, so that who reads says it in its own words.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from trajsoup.store.remote import Place, RemotePath

SMALL_BYTES = 256 << 20  # of whatever is read whole: settings, records, logs, tokenizers


def open_regular(path: Path, flags: int = 0) -> int:
    """A descriptor for reading."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, and only regular files are read", str(path))
    return fd


def opened(path: Place) -> io.BufferedReader:
    """A stream of a file or an object."""
    if isinstance(path, RemotePath):
        return path.open("rb")
    return open(path, "rb", opener=lambda name, flags: open_regular(Path(name)))


def read_small(path: Place, *, limit: int = SMALL_BYTES) -> bytes:
    """A whole file or object, which must not be longer than `limit`, whatever its size is said to be."""
    if isinstance(path, RemotePath):
        size = path.stat().st_size
        data = path.read_range(0, size) if size <= limit else b""
    else:
        with opened(path) as file:
            data = file.read(limit + 1)
            size = len(data)
    if size > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return data


def copy_small(path: Place, to: Path, *, limit: int = SMALL_BYTES) -> None:
    """Copy such a file to a place where there is none."""
    with to.open("xb") as file:
        file.write(read_small(path, limit=limit))


def read_words(path: Place, *, encoding: str = "utf-8", errors: str = "strict", limit: int = SMALL_BYTES) -> str:
    """The same as text, its lines ended by a line feed."""
    return read_small(path, limit=limit).decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")
