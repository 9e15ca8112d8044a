"""Who writes to a folder of an object store: an object that is put first and removed last.

A store knows no locks, and the clocks of two machines need not agree, so a claim has no date and never expires. It names
the machine, its boot and the process: one of this machine whose process is gone is abandoned, and the next upload clears
what it left. About another machine nothing can be known from here, so its claim is respected and the error names it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from trajsoup.errors import OutputError
from trajsoup.store.json_file import decode_json
from trajsoup.store.lock import started
from trajsoup.store.regular import read_small
from trajsoup.store.remote import RemotePath

CLAIM = ".trajsoup-unfinished"
MANIFEST = "soup.json"  # the last object of an output


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The process that writes."""

    host: str
    boot: str
    pid: int
    started: str | None


def claim_text() -> str:
    """What this process writes."""
    mine = Claim(host=socket.gethostname(), boot=_boot(), pid=os.getpid(), started=started("self"))
    return json.dumps(asdict(mine))


def abandoned(out: RemotePath) -> bool:
    """Whether `out` holds what a process of this machine left when it was killed. Refuse what another is writing."""
    path = out / CLAIM
    if not path.is_file() or (out / MANIFEST).is_file():  # with its manifest it is whole, whatever else is there
        return False
    data = read_small(path)
    try:
        owner = decode_json(data, Claim, where=path, cure="remove it", error=OutputError)
    except OutputError:
        return False  # not ours
    if owner.host == socket.gethostname() and (owner.boot != _boot() or started(str(owner.pid)) != owner.started):
        return True
    raise OutputError(
        f"{out} is being written by process {owner.pid} of {owner.host}: wait for it; or, if it is gone for certain, "
        f"remove {out} and run again"
    )


def clear(out: RemotePath) -> None:
    """Remove an abandoned upload, its invisible parts too; the claim last, so that this can be interrupted as well."""
    store = out.filesystem
    bucket, _, prefix = out.key.partition("/")
    if hasattr(store, "list_multipart_uploads"):
        with contextlib.suppress(Exception):  # a store that cannot list them has a rule that ends them
            for upload in store.list_multipart_uploads(bucket):
                if upload["Key"].startswith(f"{prefix}/"):
                    store.abort_mpu(bucket, upload["Key"], upload["UploadId"])
    found = [path / name for path, _, names in out.walk() for name in names]
    for path in sorted(found, key=lambda path: path.name == CLAIM):
        path.filesystem.rm_file(path.key)


def _boot() -> str:
    """Changes when the machine starts anew."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""
