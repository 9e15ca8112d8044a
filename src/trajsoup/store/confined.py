"""Files that this tool writes into a folder that somebody else may have filled: no name leads out, no link is followed.

inside(folder, name) -> a path below the folder, or a refusal        open_own(path, flags) -> a regular file, or a refusal
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from trajsoup.errors import OutputError

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a name that may become one: of a branch, of a sweep


def inside(folder: Path, name: str) -> Path:
    """The path of a file below the folder, whose name, or a link on the way, somebody else may have written."""
    short = os.path.normpath(name)
    leads_out = "\0" in name or short in (".", "..") or short.startswith(("/", "../"))
    if leads_out or folder.resolve() not in (folder / short).resolve().parents:
        raise OutputError(
            f"{name[:100]!r} leads out of {folder}: nothing was written; correct the record that names it, or remove the link"
        )
    return folder / short


def open_own(path: Path, flags: int) -> int:
    """Open or create a regular file for writing. A link, a pipe or a device in its place is refused, not waited for."""
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe that nobody reads
            raise OutputError(f"{path} is a link or a pipe, and is not written through: remove it") from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OutputError(f"{path} is no regular file, and is not written to: remove it")
    return fd


def append_own(path: Path) -> BinaryIO:
    """A regular file to add to."""
    return os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab")
