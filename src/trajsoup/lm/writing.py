"""Write token sets: documents come in any order of splits, tokens go straight to disk, offsets are kept in memory."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.splits import Split
from trajsoup.errors import CorpusError
from trajsoup.lm.documents import Document

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH = 256  # documents encoded at once, by as many threads as the library likes
MOST_SOURCES = 256


class TokenWriter:
    """Encodes documents into `<split>.tokens` and `<split>.npz`, and describes them in corpus.json."""

    def __init__(self, folder: Path, *, tokenizer: Tokenizer, end_id: int) -> None:
        self.folder, self.tokenizer, self.end_id = folder, tokenizer, end_id
        self.vocab_size = tokenizer.get_vocab_size()
        self.dtype = np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")
        self.sources: dict[str, int] = {}
        self.waiting: list[tuple[Split, Document]] = []
        self.files = {split: (folder / f"{split.value}.tokens").open("wb") for split in Split}
        self.hashes = {split: hashlib.sha256() for split in Split}
        self.lengths: dict[Split, list[NDArray[np.int64]]] = {split: [] for split in Split}
        self.nbytes: dict[Split, list[int]] = {split: [] for split in Split}
        self.source: dict[Split, list[int]] = {split: [] for split in Split}

    def add(self, split: Split, document: Document) -> None:
        """Take one document."""
        self.waiting.append((split, document))
        if len(self.waiting) >= BATCH:
            self._encode()

    def add_tokens(self, split: Split, path: Path) -> None:
        """Take a file of tokens: .npy with its own dtype, or .bin of uint16. The tail after the last end is cut."""
        try:
            tokens = np.load(path, mmap_mode="r") if path.suffix == ".npy" else np.memmap(path, "<u2", "r")
        except (ValueError, OSError) as error:
            raise CorpusError(f"{path} cannot be read as tokens ({error}): write it again as a 1-D .npy") from error
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise CorpusError(
                f"{path} holds {tokens.dtype} of shape {tokens.shape}: tokens are a 1-D array of integers"
            )
        largest = int(tokens.max(initial=0))
        if largest >= self.vocab_size or int(tokens.min(initial=0)) < 0:
            raise CorpusError(
                f"{path} holds the token {largest}, but its tokenizer has {self.vocab_size:,}: it was tokenised with "
                "another one; set corpus.tokenizer to that"
            )
        ends = np.flatnonzero(tokens == self.end_id) + 1
        if len(ends) == 0:
            raise CorpusError(f"{path} never ends a document (token {self.end_id}): end every document with it")
        lengths = np.diff(ends, prepend=0)
        empty = np.flatnonzero(lengths < 2)
        if len(empty):
            raise CorpusError(
                f"{path}: document {int(empty[0]):,} is empty (as are {len(empty) - 1:,} others), and nothing can be "
                "predicted in it: remove them"
            )
        self._write(split, tokens[: ends[-1]], lengths)
        self.source[split] += [self._source("tokens")] * len(lengths)

    def finish(self) -> None:
        """Write what is left, the offsets and the description."""
        self._encode()
        sets: dict[str, Any] = {}
        for split in Split:
            self.files[split].close()
            starts = np.zeros(1 + sum(len(part) for part in self.lengths[split]), "<i8")
            if self.lengths[split]:
                np.cumsum(np.concatenate(self.lengths[split]), out=starts[1:])
            self.hashes[split].update(starts.tobytes())
            known = len(self.nbytes[split]) == len(starts) - 1
            np.savez(
                self.folder / f"{split.value}.npz",
                starts=starts,
                document_bytes=np.array(self.nbytes[split] if known else [], "<i8"),
                source=np.array(self.source[split], np.uint8),
            )
            sets[split.value] = {
                "documents": len(starts) - 1,
                "tokens": int(starts[-1]),
                "bytes_known": known,
                "digest": self.hashes[split].hexdigest(),
            }
        record = {
            "vocab_size": self.vocab_size,
            "dtype": self.dtype.str,
            "end_id": self.end_id,
            "source_names": list(self.sources),
            "sets": sets,
        }
        (self.folder / "corpus.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    def _encode(self) -> None:
        texts = [document.text for _, document in self.waiting]
        for (split, document), encoded in zip(
            self.waiting, self.tokenizer.encode_batch_fast(texts, add_special_tokens=False), strict=True
        ):
            ids = np.array([*encoded.ids, self.end_id], self.dtype)
            self._write(split, ids, np.array([len(ids)]))
            self.nbytes[split].append(len(document.text.encode("utf-8", "surrogatepass")))
            self.source[split].append(self._source(document.source))
        self.waiting.clear()

    def _write(self, split: Split, tokens: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        raw = tokens.astype(self.dtype, copy=False).tobytes()
        self.files[split].write(raw)
        self.hashes[split].update(raw)
        self.lengths[split].append(lengths)

    def _source(self, name: str) -> int:
        if name not in self.sources and len(self.sources) == MOST_SOURCES:
            raise CorpusError(f"the corpus names more than {MOST_SOURCES} sources: set source_field to a coarser field")
        return self.sources.setdefault(name, len(self.sources))
