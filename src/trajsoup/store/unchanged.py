"""Whether files are still what they were when a pass began: a checkpoint that is rewritten under it gives neither version.

state_of(file) -> size, times of change and inode, or an object's version        require_unchanged(files, states)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from trajsoup.errors import CheckpointError
from trajsoup.store.remote import Place, RemotePath

REQUESTS = 16  # at once, to an object store
State = tuple[int | str, ...]


def state_of(path: Place) -> State:
    """What changes when the content does. Of an object: as it was when its size was first asked for."""
    if isinstance(path, RemotePath):
        return (path.stat().st_size, path.stat().version)
    return state_of_stat(os.stat(path))


def state_of_stat(found: os.stat_result) -> State:
    """The same of a file that is open."""
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def require_unchanged(files: Sequence[Place], states: Sequence[State]) -> None:
    """Refuse what was read of a file that is not as it was, or is gone."""
    if any(isinstance(path, RemotePath) for path in files):
        with ThreadPoolExecutor(REQUESTS) as pool:
            found = list(pool.map(_now, files))
    else:
        found = [_now(path) for path in files]
    for path, before, now in zip(files, states, found, strict=True):
        if now != before:
            raise CheckpointError(
                f"{path} {'changed' if now else 'disappeared'} while it was read, so what was read is neither version: "
                f"nothing was written; wait until whatever writes there is done, and run again{_linked(before, now)}"
            )


def _linked(before: State, now: State | None) -> str:
    """A hint where size and time of writing are as before. Both can be set back, so the file is not believed all the same."""
    same = now is not None and len(now) == 4 and (*before[:2], before[3]) == (*now[:2], now[3])
    return " (its size and time of writing are as before: did a backup link it, or somebody change its rights?)" * same


def _now(path: Place) -> State | None:
    try:
        return state_of(RemotePath(path.url) if isinstance(path, RemotePath) else path)
    except FileNotFoundError:
        return None
