"""Output appears whole or not at all: build in a hidden neighbour, fsync, rename.

with publishing(out, need_bytes=n) as folder:
    ...write into folder...
# now `out` exists; after an exception or a kill it does not
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from trajsoup.core.quantity import format_bytes
from trajsoup.errors import OutputError

MARK = ".trajsoup-unfinished-"
_OTHER_DISK = "free some space, or choose an --output on another disk"
_OTHER_FOLDER = "choose an --output in a folder you may write to"
_CURES = {
    errno.ENOSPC: _OTHER_DISK,
    errno.EDQUOT: _OTHER_DISK,
    errno.EFBIG: "raise the limit on file sizes, or write smaller files",
    errno.EACCES: _OTHER_FOLDER,
    errno.EPERM: _OTHER_FOLDER,
    errno.EROFS: _OTHER_FOLDER,
}
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # a failed copy names its source even so


@contextlib.contextmanager
def publishing(out: Path, *, need_bytes: int = 0, file: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `out` that becomes `out` when the block ends without an exception.

    Where a `file` is wanted, the one in the folder that has the name of `out` becomes it.
    """
    out = Path(os.path.abspath(out))
    require_free(out, need_bytes=need_bytes)
    # named before it is made: an interrupt at any moment knows what to remove
    folder, lock = out.parent / f".{out.name}{MARK}{secrets.token_hex(8)}", None
    try:
        with _translated(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(out)
            lock = _made_and_locked(folder)
            yield folder
            sync_tree(folder)
            if os.path.lexists(out):
                raise OutputError(
                    f"{out} appeared while the soup was made: it is left as it is; choose another --output"
                )
            if file:
                (folder / out.name).rename(out)
                folder.rmdir()
            else:
                folder.chmod(0o755)
                folder.rename(out)
            _sync(out.parent)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _made_and_locked(folder: Path) -> int:
    """Make the folder and lock it. Another writer that clears up may take it away before it is locked: then once more."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # where folders cannot be locked (NFS), `remove_stale` removes none either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return lock
        os.close(lock)


def require_free(out: Path, *, need_bytes: int = 0, inputs: Sequence[Path] = ()) -> None:
    """Refuse, before any work, an output that exists, overlaps an input, or does not fit the disk."""
    out = Path(os.path.abspath(out))
    if os.path.lexists(out):
        raise OutputError(f"{out} exists, and existing output is never replaced: choose another --output, or remove it")
    place = out.resolve()
    for path in inputs:
        source = path.resolve()
        if source.is_file():
            source = source.parent if place.parent != source.parent else source
        if place == source or source in place.parents:
            raise OutputError(f"{out} lies inside the input {path}: choose an --output outside every input")
        if place in source.parents:
            raise OutputError(f"{out} contains the input {path}: choose an --output outside every input")
    parent = next(p for p in place.parents if p.exists())
    if not os.access(parent, os.W_OK):
        raise OutputError(f"cannot write to {parent}: {_OTHER_FOLDER}")
    free = shutil.disk_usage(parent).free
    if free < need_bytes:
        raise OutputError(
            f"the output needs {format_bytes(need_bytes)} and {parent} has {format_bytes(free)} free: {_OTHER_DISK}"
        )


def remove_stale(out: Path) -> None:
    """Remove what a killed merge to the same output left. A merge still at work holds a lock and is left alone."""
    for folder in out.parent.glob(f".{glob.escape(out.name)}{MARK}*"):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # another has removed it
            continue
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def write_atomic(path: Path, text: str) -> None:
    """Write a small text file whole or not at all, replacing what was there."""
    path = Path(os.path.abspath(path))
    with _translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync(path.parent)


def sync_tree(folder: Path) -> None:
    """fsync every file and folder below `folder`."""
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync(Path(parent, name))
        _sync(Path(parent))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _translated(out: Path) -> Iterator[None]:
    """Say which file failed and why, and what helps against that."""
    try:
        yield
    except OSError as error:
        why, source = error.strerror or str(error), _input(error, out)
        if source is not None:
            raise OutputError(
                f"cannot make {out}: cannot read {source}: {why}: nothing was left behind; check that file and its disk"
            ) from error
        cure = _CURES.get(error.errno or 0, "check the disk, or choose another --output")
        raise OutputError(f"cannot write {out}: {why}: nothing was left behind; {cure}") from error


def _input(error: OSError, out: Path) -> Path | None:
    """The file that failed, if it is named and does not belong to the output."""
    if error.errno in _OF_WRITING or not isinstance(error.filename, str | os.PathLike):
        return None
    path = Path(os.path.abspath(error.filename))
    unfinished = out.parent / f".{out.name}"
    ours = path in (out, *out.parents) or str(path).startswith(str(unfinished))
    return None if ours else path
