"""Write token sets: documents come in any order of splits, tokens go straight to disk, offsets are kept in memory."""

from __future__ import annotations

import hashlib
import tokenize
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.splits import Split
from trajsoup.errors import CorpusError
from trajsoup.lm.documents import Document
from trajsoup.store.json_file import json_text
from trajsoup.store.regular import opened

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH = 256  # documents encoded at once, by as many threads as the library likes
MOST_SOURCES = 256
COPY_TOKENS = 1 << 24  # of a token file at a time
RECORD = "corpus.json"
WRONG_HEADER = (ValueError, TypeError, SyntaxError, EOFError, tokenize.TokenError)  # of .npy: a literal of Python


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRecord:
    """One split, as the record describes it."""

    documents: int
    tokens: int
    bytes_known: bool
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusRecord:
    """corpus.json."""

    vocab_size: int
    dtype: str
    end_id: int
    source_names: tuple[str, ...]
    sets: Mapping[str, SetRecord]


class TokenWriter:
    """Encodes documents into `<split>.tokens` and `<split>.npz`, and describes them in corpus.json.

    A document of a set with `most_tokens` is cut there: its beginning is written, and the end-of-text after it, which is
    marked as not its own: nobody is to predict it.
    """

    def __init__(
        self, folder: Path, *, tokenizer: Tokenizer, end_id: int, most_tokens: Mapping[Split, int] | None = None
    ) -> None:
        self.most_tokens = most_tokens or {}
        self.folder, self.tokenizer, self.end_id = folder, tokenizer, end_id
        self.vocab_size = tokenizer.get_vocab_size()
        self.dtype = np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")
        self.sources: dict[str, int] = {}
        self.waiting: list[tuple[Split, Document]] = []
        self.files = {split: (folder / f"{split.value}.tokens").open("wb") for split in Split}
        self.hashes = {split: hashlib.sha256() for split in Split}
        self.lengths: dict[Split, list[int]] = {split: [] for split in Split}
        self.nbytes: dict[Split, list[int]] = {split: [] for split in Split}
        self.source: dict[Split, list[int]] = {split: [] for split in Split}
        self.cut: dict[Split, list[bool]] = {split: [] for split in Split}

    def add(self, split: Split, document: Document) -> None:
        """Take one document."""
        self.waiting.append((split, document))
        if len(self.waiting) >= BATCH:
            self._encode()

    def add_tokens(self, split: Split, path: Path) -> None:
        """Take a file of tokens: .npy with its own dtype, or .bin of uint16. The tail after the last end is cut."""
        try:
            with opened(path) as file:  # a regular one
                tokens = np.load(path, mmap_mode="r") if path.suffix == ".npy" else np.memmap(file, "<u2", "r")
        except (*WRONG_HEADER, OSError) as error:
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
        most = self.most_tokens.get(split)
        if most is not None and int(lengths.max()) > most:
            for last, length in zip(ends, lengths, strict=True):
                self._write(split, tokens[last - length : last - length + min(length, most) - 1])
                self._write(split, tokens[last - 1 : last])
            self.cut[split] += (lengths > most).tolist()
            lengths = np.minimum(lengths, most)
        else:
            self.cut[split] += [False] * len(lengths)
            for start in range(0, int(ends[-1]), COPY_TOKENS):
                self._write(split, tokens[start : min(start + COPY_TOKENS, int(ends[-1]))])
        self.lengths[split] += lengths.tolist()
        self.source[split] += [self._source("tokens")] * len(lengths)

    def finish(self) -> None:
        """Write what is left, the offsets and the description."""
        self._encode()
        sets: dict[str, SetRecord] = {}
        for split in Split:
            self.files[split].close()
            starts = np.cumsum([0, *self.lengths[split]], dtype="<i8")
            self.hashes[split].update(starts.tobytes())
            known = len(self.nbytes[split]) == len(starts) - 1
            cut = np.array(self.cut[split] if any(self.cut[split]) else [], np.bool_)
            self.hashes[split].update(cut.tobytes())
            np.savez(
                self.folder / f"{split.value}.npz",
                starts=starts,
                document_bytes=np.array(self.nbytes[split] if known else [], "<i8"),
                source=np.array(self.source[split], np.uint8),
                cut=cut,
            )
            sets[split.value] = SetRecord(
                documents=len(starts) - 1,
                tokens=int(starts[-1]),
                bytes_known=known,
                digest=self.hashes[split].hexdigest(),
            )
        record = CorpusRecord(
            vocab_size=self.vocab_size,
            dtype=self.dtype.str,
            end_id=self.end_id,
            source_names=tuple(self.sources),
            sets=sets,
        )
        (self.folder / RECORD).write_text(json_text(asdict(record)) + "\n", encoding="utf-8")

    def _encode(self) -> None:
        texts = [document.text for _, document in self.waiting]
        encode = self.tokenizer.encode_batch if self.most_tokens else self.tokenizer.encode_batch_fast  # with offsets
        for (split, document), encoded in zip(self.waiting, encode(texts, add_special_tokens=False), strict=True):
            text, found = document.text, encoded.ids
            most = self.most_tokens.get(split)
            self.cut[split].append(most is not None and len(found) >= most)
            if most is not None and len(found) >= most:
                found = found[: most - 1]
                text = text[: encoded.offsets[most - 2][1]] if most > 1 else ""
            ids = np.array([*found, self.end_id], self.dtype)
            self._write(split, ids)
            self.lengths[split].append(len(ids))
            self.nbytes[split].append(len(text.encode("utf-8", "surrogatepass")))
            self.source[split].append(self._source(document.source))
        self.waiting.clear()

    def _write(self, split: Split, tokens: NDArray[Any]) -> None:
        raw = tokens.astype(self.dtype, copy=False).tobytes()
        self.files[split].write(raw)
        self.hashes[split].update(raw)

    def _source(self, name: str) -> int:
        if name not in self.sources and len(self.sources) == MOST_SOURCES:
            raise CorpusError(f"the corpus names more than {MOST_SOURCES} sources: set source_field to a coarser field")
        return self.sources.setdefault(name, len(self.sources))
