"""Send the blocks of an output to an object store: parts in order, as the blocks are made."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping

from trajsoup.engine.layout import Layout
from trajsoup.store.upload import Upload


class ObjectSink:
    """One output as objects. A block that comes early waits for its turn, so nothing piles up in memory."""

    waits = True

    def __init__(self, upload: Upload, layout: Layout, *, digest: bool = True) -> None:
        self.upload, self.layout = upload, layout
        self._turn = threading.Condition()
        self._cancelled = False
        self._positions = [len(file.lead) for file in layout.files]
        self._hashes = [hashlib.sha256(file.lead) for file in layout.files] if digest else []
        for file in layout.files:
            upload.begin(file.name, file_bytes=file.header.file_bytes)
            upload.write(file.name, file.lead)

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Add the block after all bytes before it."""
        with self._turn:
            self._turn.wait_for(lambda: self._positions[file] == offset or self._cancelled)
            if self._cancelled:
                return
        if self._hashes:
            self._hashes[file].update(block)
        self.upload.write(self.layout.files[file].name, block)
        with self._turn:
            self._positions[file] += len(block)
            self._turn.notify_all()

    def finish(self) -> Mapping[str, str]:
        """Each file's sha256, if it was asked for. The objects appear when the upload is published."""
        return {file.name: h.hexdigest() for file, h in zip(self.layout.files, self._hashes, strict=False)}

    def cancel(self) -> None:
        """Let threads go that wait for their turn."""
        with self._turn:
            self._cancelled = True
            self._turn.notify_all()
