"""Documents become four sets of tokens that share no document, cached by content.

    spec -> documents -> split by hash -> tokenizer -> tokens on disk (memory-mapped) -> Corpus

Every document ends with the end-of-text id. The cache folder is named by a hash of everything that shapes it: the
files, the builtin corpus, the settings, the tokenizer. It appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from trajsoup.core.quantity import Tokens
from trajsoup.core.splits import Split, document_hash, split_of
from trajsoup.errors import CorpusError, OutputError, install
from trajsoup.lm import builtin
from trajsoup.lm.documents import TOKEN_SUFFIXES, Document, files_of, read_documents
from trajsoup.lm.tasks.training import tasks_digest
from trajsoup.lm.tokenizer import end_of_text_id, load_tokenizer, train_tokenizer
from trajsoup.lm.writing import RECORD, CorpusRecord, TokenWriter
from trajsoup.store.digest import sha256_file
from trajsoup.store.fields import Name
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import publishing
from trajsoup.store.regular import opened, read_small

FORMAT = 3  # raise it when the same input would give other tokens
Files = tuple[Path, ...]
HELD_OUT = (Split.VALIDATION, Split.TEST)
HELD_OUT_SHARE = 0.05  # of a user's training documents, for a validation or test set that was not named
TOKENIZER_CHARACTERS = 32 << 20  # more text changes a small vocabulary no further


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSet:
    """One split: its tokens, and where its documents begin."""

    tokens: NDArray[np.uint32 | np.uint16]  # 1-D, usually a read-only memmap; every document ends with end-of-text
    starts: NDArray[np.int64]  # offsets of the documents, last entry = len(tokens)
    digest: str  # sha256 of tokens and starts
    document_bytes: NDArray[np.int64] | None = None  # UTF-8 bytes of each document; None: known only as tokens
    source: NDArray[np.uint8] | None = None  # by document: position in source_names
    source_names: tuple[str, ...] = ()
    cut: NDArray[np.bool_] | None = None  # by document: its end-of-text stands where it was cut; None: all are whole

    @property
    def targets(self) -> NDArray[np.int64]:
        """By document: its tokens that are predicted. The end of one that was cut is not: the text goes on there."""
        lengths = np.diff(self.starts)
        return lengths if self.cut is None else lengths - self.cut

    @property
    def n_documents(self) -> int:
        """How many documents the set holds."""
        return len(self.starts) - 1

    @property
    def n_tokens(self) -> int:
        """How many tokens the set holds, end-of-text included."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Four sets and the tokenizer that made them."""

    pretrain: TokenSet
    train: TokenSet
    validation: TokenSet
    test: TokenSet
    tokenizer: Path  # a folder that transformers' AutoTokenizer loads
    vocab_size: int

    def split(self, split: Split) -> TokenSet:
        """The set of that name."""
        return getattr(self, split.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSpec:
    """Where documents come from. Without any path it is the builtin corpus."""

    train: Annotated[
        Files,
        "Files or folders of the training documents. Without any set the corpus is the builtin one; runs that exist need "
        "validation and test alone.",
    ] = ()
    validation: Annotated[Files, "Documents that rank checkpoints. Left out: a share of train, by document."] = ()
    test: Annotated[Files, "Documents that are reported on, never used to choose. Left out: a share of train."] = ()
    pretrain: Annotated[Files, "Documents for `pretrain`."] = ()
    tokenizer: Annotated[
        Path | None,
        builtin.parse_model_folder,
        "Its folder, or `builtin`. Left out: the fork point's, or a BPE trained on the documents.",
    ] = None
    vocab_size: Annotated[Tokens, "Of a tokenizer that is trained here."] = 1024
    text_field: Annotated[Name, "Of JSONL and Parquet."] = "text"
    source_field: Annotated[Name, "Of JSONL and Parquet: where a document comes from, for losses by source."] = "source"
    document_tokens: Annotated[
        Tokens,
        "Of a validation or test document no more than so many tokens are scored, its beginning, so that none outweighs "
        "the others.",
    ] = 2048
    task_share: Annotated[float, "Builtin corpus: share of generated task documents in what is trained on."] = 0.3
    train_bytes: Annotated[Tokens | None, "Builtin corpus: bytes of prose to train on."] = None
    pretrain_bytes: Annotated[Tokens | None, "Builtin corpus: bytes of code to pretrain on."] = None
    seed: Annotated[int, "Builtin corpus: seed of the generated tasks."] = 0

    @staticmethod
    def spelled_out(value: Any) -> Any:
        """`builtin`, or the training documents alone."""
        return {} if value == "builtin" else {"train": value} if isinstance(value, str) else value

    @property
    def is_builtin(self) -> bool:
        """Whether the corpus is the embedded one."""
        return not (self.train or self.validation or self.test or self.pretrain)

    @property
    def can_train(self) -> bool:
        """Whether it has documents to train on."""
        return bool(self.train) or self.is_builtin


def load_corpus(spec: CorpusSpec, *, cache: Path) -> Corpus:
    """Return the corpus, from the cache if these very documents and settings were tokenised before."""
    _require_sensible(spec)
    key = hashlib.sha256(json.dumps(_identity(spec), sort_keys=True).encode()).hexdigest()
    folder = Path(os.path.abspath(cache)) / f"corpus-{key[:20]}"
    if not folder.is_dir():
        try:
            with publishing(folder) as unfinished:
                _build(spec, unfinished)
        except OutputError:
            if not folder.is_dir():  # otherwise another process made the same corpus meanwhile
                raise
    return _open(spec, folder, needed=(Split.TRAIN, *HELD_OUT) if spec.can_train else HELD_OUT)


def only_validation(paths: Sequence[Path], *, tokenizer: Path, folder: Path) -> Corpus:
    """Tokenise documents to score on into `folder`; the other sets are empty."""
    files = files_of(tuple(paths))
    loaded = load_tokenizer(tokenizer)
    writer = TokenWriter(folder, tokenizer=loaded, end_id=end_of_text_id(loaded, tokenizer))
    for path in files:
        if path.suffix in TOKEN_SUFFIXES:
            writer.add_tokens(Split.VALIDATION, path)
            continue
        for document in read_documents(path, text_field="text", source_field="source"):
            if document.text.strip():
                writer.add(Split.VALIDATION, document)
    writer.finish()
    return _open(CorpusSpec(tokenizer=tokenizer), folder, needed=(Split.VALIDATION,))


def require_vocabulary(corpus: Corpus, *, vocab_size: int, model: str) -> None:
    """Refuse a model whose embedding cannot hold the corpus's tokens."""
    if vocab_size < corpus.vocab_size:
        raise CorpusError(
            f"{model} has {vocab_size:,} embeddings, but the corpus's tokenizer ({corpus.tokenizer}) has "
            f"{corpus.vocab_size:,} tokens: tokenise the corpus with the model's own tokenizer (corpus.tokenizer)"
        )


def require_same_tokenizer(corpus: Corpus, *, model: Path) -> None:
    """Refuse a model folder whose tokenizer is another than the corpus's. A folder without one is not checked."""
    theirs, ours = model / "tokenizer.json", corpus.tokenizer / "tokenizer.json"
    if not theirs.is_file() or read_small(theirs) == read_small(ours):
        return
    theirs_vocab, ours_vocab = load_tokenizer(model).get_vocab(), load_tokenizer(corpus.tokenizer).get_vocab()
    if theirs_vocab != ours_vocab:
        different = next(
            t for t in sorted(theirs_vocab.keys() | ours_vocab) if theirs_vocab.get(t) != ours_vocab.get(t)
        )
        raise CorpusError(
            f"the tokenizers of {model} and of the corpus ({corpus.tokenizer}) disagree: token {different!r} is "
            f"{theirs_vocab.get(different)} and {ours_vocab.get(different)}: set corpus.tokenizer to the model's folder"
        )


def _require_sensible(spec: CorpusSpec) -> None:
    if spec.is_builtin and not 0 <= spec.task_share < 1:
        raise CorpusError(f"task_share is {spec.task_share:g}: use a number from 0 up to, not including, 1")
    if not spec.can_train and not (spec.validation and spec.test):
        raise CorpusError(
            "the corpus has no training documents to split others off: name both validation and test, or add train"
        )
    if not spec.can_train and spec.tokenizer is None:
        raise CorpusError("no training documents, so no tokenizer can be made of them: set corpus.tokenizer")
    tokens = [p for split in Split for p in getattr(spec, split.value) if p.suffix in TOKEN_SUFFIXES]
    if tokens and spec.tokenizer is None:
        raise CorpusError(f"{tokens[0]} holds tokens, whose tokenizer cannot be guessed: set corpus.tokenizer")
    if tokens and not (spec.validation and spec.test):
        raise CorpusError(f"{tokens[0]} holds tokens, which are not split here: name validation and test sets too")


def _identity(spec: CorpusSpec) -> dict[str, Any]:
    """Everything that shapes the tokens, by content."""
    identity: dict[str, Any] = {"format": FORMAT, "document_tokens": spec.document_tokens}
    if importlib.util.find_spec("tokenizers") is None:
        raise CorpusError(f"tokenising needs the tokenizers library: {install('train')}")
    if spec.tokenizer is None:
        identity |= {"vocab_size": spec.vocab_size, "tokenizers": importlib.metadata.version("tokenizers")}
    else:
        load_tokenizer(spec.tokenizer)
        identity["tokenizer"] = sha256_file(spec.tokenizer / "tokenizer.json")
    if spec.is_builtin:
        return identity | {
            "builtin": [builtin.builtin_digest(), spec.pretrain_bytes, spec.train_bytes],
            "tasks": [spec.task_share, spec.seed, tasks_digest()],
        }
    sets = {s.value: [[p.suffix, sha256_file(p)] for p in files_of(getattr(spec, s.value))] for s in Split}
    return identity | {"sets": sets, "fields": [spec.text_field, spec.source_field], "held_out": HELD_OUT_SHARE}


def _build(spec: CorpusSpec, folder: Path) -> None:
    documents = list(_documents(spec)) if spec.is_builtin else None  # generated once, read again from files otherwise
    if spec.tokenizer is None:
        texts = _training_texts(documents or _documents(spec))
        train_tokenizer(texts, folder / "tokenizer", vocab_size=spec.vocab_size)
    tokenizer_folder = spec.tokenizer or folder / "tokenizer"
    tokenizer = load_tokenizer(tokenizer_folder)
    writer = TokenWriter(
        folder,
        tokenizer=tokenizer,
        end_id=end_of_text_id(tokenizer, tokenizer_folder),
        most_tokens=dict.fromkeys(HELD_OUT, spec.document_tokens),
    )
    for split, document in documents or _documents(spec):
        writer.add(split, document)
    for split in Split:
        for path in files_of(getattr(spec, split.value)):
            if path.suffix in TOKEN_SUFFIXES:
                writer.add_tokens(split, path)
    writer.finish()


def _training_texts(documents: Iterable[tuple[Split, Document]]) -> Iterator[str]:
    """What a tokenizer may see: never a validation or test document."""
    left = TOKENIZER_CHARACTERS
    for split, document in documents:
        if split in (Split.PRETRAIN, Split.TRAIN) and left > 0:
            left -= len(document.text)
            yield document.text


def _documents(spec: CorpusSpec) -> Iterator[tuple[Split, Document]]:
    """Every text document with its set. A document of a later set that an earlier one holds too is left out."""
    if spec.is_builtin:
        yield from builtin.documents(
            task_share=spec.task_share,
            pretrain_bytes=spec.pretrain_bytes,
            train_bytes=spec.train_bytes,
            seed=spec.seed,
        )
        return
    wanted = {s: HELD_OUT_SHARE for s in HELD_OUT if not getattr(spec, s.value)}
    held_out = {**wanted, Split.TRAIN: 1 - sum(wanted.values())}
    owner: dict[bytes, Split] = {}  # half a hash is enough to tell documents apart
    for split in (Split.TEST, Split.VALIDATION, Split.TRAIN, Split.PRETRAIN):
        for path in files_of(getattr(spec, split.value)):
            if path.suffix in TOKEN_SUFFIXES:
                continue
            for document in read_documents(path, text_field=spec.text_field, source_field=spec.source_field):
                if not document.text.strip():
                    continue
                digest = document_hash(document.text)
                place = split_of(digest, shares=held_out) if split is Split.TRAIN else split
                if owner.setdefault(bytes.fromhex(digest[:32]), place) is place:
                    yield place, document


def _open(spec: CorpusSpec, folder: Path, *, needed: Sequence[Split] = HELD_OUT) -> Corpus:
    record = read_json(folder / RECORD, CorpusRecord, cure="remove its folder", error=CorpusError)
    sets: dict[str, TokenSet] = {}
    for split in Split:
        entry = record.sets[split.value]
        if entry.tokens == 0:
            if split in needed:
                raise CorpusError(
                    f"the corpus is too small for its splits: {split.value} has no document "
                    f"({_counts(record)}): add documents, or name a {split.value} set"
                )
            tokens: NDArray[Any] = np.zeros(0, record.dtype)
        else:
            with opened(folder / f"{split.value}.tokens") as file:
                tokens = np.memmap(file, record.dtype, "r")
        with opened(folder / f"{split.value}.npz") as packed, np.load(packed) as file:
            arrays = dict(file)
        sets[split.value] = TokenSet(
            tokens=tokens,
            starts=arrays["starts"],
            digest=entry.digest,
            document_bytes=arrays["document_bytes"] if entry.bytes_known else None,
            source=arrays["source"],
            source_names=record.source_names,
            cut=arrays["cut"] if len(arrays["cut"]) else None,
        )
    tokenizer = spec.tokenizer or folder / "tokenizer"
    return Corpus(**sets, tokenizer=tokenizer, vocab_size=record.vocab_size)


def _counts(record: CorpusRecord) -> str:
    return ", ".join(f"{name} {entry.documents:,}" for name, entry in record.sets.items())
