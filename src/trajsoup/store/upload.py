"""Output in an object store appears whole or not at all: nothing is visible until all of it has arrived.

    with uploading(out) as upload:
        upload.write("model-00001-of-00002.safetensors", block)     # parts of a multipart upload, in order
        upload.publish(folder, last=("model.safetensors.index.json", "soup.json"))

A store has no rename. So the weights travel as multipart uploads that nobody can see; then the small files are put, the
uploads are completed, and the manifest comes last: without the index no reader takes the shards for a model, and without
soup.json no one takes the folder for a finished soup. After an exception the uploads are aborted and what was
already put is removed. A process that is killed outright leaves its claim (claim.py), by which the next upload to the
same place removes what it had put.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trajsoup.errors import OutputError
from trajsoup.store.claim import CLAIM, abandoned, claim_text, clear
from trajsoup.store.regular import opened, read_small
from trajsoup.store.remote import RemotePath
from trajsoup.store.retry import PERMANENT, retrying

PART_BYTES = 16 << 20  # S3 takes 5 MB to 5 GB, and 10,000 parts: see `part_bytes`
MOST_PARTS = 9_000


@contextlib.contextmanager
def uploading(out: RemotePath) -> Iterator[Upload]:
    """Yield an upload to `out`, which must hold nothing yet but what a killed upload left."""
    require_absent(out)
    if out.exists():
        clear(out)
    upload = Upload(out)
    try:
        upload.claim()
        yield upload
        upload.release()
    except BaseException:
        upload.discard()
        raise


def require_absent(out: RemotePath) -> None:
    """Refuse an output that exists, unless it is the torso of an upload whose process is gone."""
    if out.exists() and not abandoned(out):
        raise OutputError(f"{out} exists, and existing output is never replaced: choose another --output, or remove it")


def part_bytes(file_bytes: int) -> int:
    """How large the parts of an object must be, so that there are not too many."""
    return max(PART_BYTES, -(-file_bytes // MOST_PARTS))


class Upload:
    """Objects on their way into one folder."""

    def __init__(self, out: RemotePath) -> None:
        self.out = out
        self._open: dict[str, Any] = {}
        self._put: list[str] = []

    def claim(self) -> None:
        """Say in the store who is writing here."""
        self._put_bytes(CLAIM, claim_text().encode())

    def release(self) -> None:
        """The output is whole: the claim goes."""
        path = self.out / CLAIM
        retrying(lambda: path.filesystem.rm_file(path.key), what=f"removing {path}")

    def begin(self, name: str, *, file_bytes: int) -> None:
        """Start an object whose bytes come through `write`."""
        path = self.out / name
        self._open[name] = path.filesystem.open(
            path.key, "wb", block_size=part_bytes(file_bytes), autocommit=False, cache_type="none"
        )

    def expect(self, names: Sequence[str]) -> None:
        """Other machines put these objects; if this upload fails, they go with it."""
        self._put += names

    def write(self, name: str, block: bytes | memoryview) -> None:
        """Add bytes to an object. A full part is sent before this returns."""
        file = self._open[name]
        self._sending(name, lambda: file.write(block), final=False)

    def publish(self, folder: Path, *, last: Sequence[str]) -> None:
        """Put the files of a local folder, complete the uploads, then put the files named in `last`, in that order."""
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        for name in files:
            if name not in last:
                self._put_file(name, folder / name)
        for name, file in self._open.items():
            self._sending(name, file.close, final=True)  # sends the last part; still invisible
        for name, file in list(self._open.items()):
            self._put.append(name)
            retrying(lambda name=name, file=file: self._complete(name, file), what=f"completing {self.out / name}")
            del self._open[name]
        for name in last:
            if name in files:
                self._put_file(name, folder / name)

    def discard(self) -> None:
        """Abort what is under way and remove what was put, as far as the store answers; the claim last."""
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.discard()
            file.closed = True  # or the garbage collector would send the rest
        for name in reversed(self._put):
            path = self.out / name
            with contextlib.suppress(Exception):
                path.filesystem.rm_file(path.key)

    def _sending(self, name: str, action: Callable[[], object], *, final: bool) -> None:
        """Do what may send a part. After a stumble only the sending is done again: the file holds the bytes until then."""
        file = self._open[name]

        def again() -> None:
            file.closed, file.forced = False, False
            if getattr(file, "mpu", True) is None:  # the upload could not even begin
                file.offset = None
            file.flush(force=final)
            file.closed = final

        try:
            action()
        except PERMANENT:
            raise
        except Exception:  # noqa: BLE001  # every store's client has a tree of its own; `retrying` knows them
            retrying(again, what=f"writing {self.out / name}")

    def _complete(self, name: str, file: Any) -> None:
        """Complete a multipart upload, unless an earlier attempt did and only its answer was lost."""
        path, sent = self.out / name, file.tell()
        try:
            file.commit()
        except Exception:
            if path.is_file() and path.stat().st_size == sent:
                return
            raise

    def _put_file(self, name: str, source: Path) -> None:
        """A small file at once; a large one in parts, which are completed with the others."""
        nbytes = source.stat().st_size
        if nbytes <= PART_BYTES:
            self._put_bytes(name, read_small(source))
            return
        self.begin(name, file_bytes=nbytes)
        with opened(source) as file:
            while block := file.read(PART_BYTES):
                self.write(name, block)

    def _put_bytes(self, name: str, data: bytes) -> None:
        self._put.append(name)
        (self.out / name).write_bytes(data)
