"""The corpus of every machine that can train: code to pretrain on, and text of another domain to mid-train on.

    pretrain                      sources of the standard library without their docstrings, and generated tasks
    train | validation | test     docstrings of the libraries that training needs, one document a file; tasks to train on

A file is one document, placed by its name alone: no file is in two sets, and cutting one into pieces would add nothing
to what is known about it. Which libraries are read is fixed; their versions are what is installed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from trajsoup.core.splits import Split, document_hash, split_of
from trajsoup.errors import CorpusError, install
from trajsoup.lm.documents import Document
from trajsoup.lm.tasks.training import task_documents
from trajsoup.store.fields import At, parse_name
from trajsoup.store.regular import read_words

FORK_POINTS = Path(__file__).parent / "fork_points"  # models pretrained on this corpus, a seed each: `make fork-points`
FORK_POINT = FORK_POINTS / "0"  # with the tokenizer that all have
VERSION = 3  # raise it when the same files would give other documents
PROSE_SHARES = {Split.TRAIN: 0.3, Split.VALIDATION: 0.2, Split.TEST: 0.5}  # of the files with docstrings

LEAST_CHARACTERS = 400
MOST_CHARACTERS = {Split.PRETRAIN: 32 << 10, Split.TRAIN: 4 << 10, Split.VALIDATION: 2 << 10, Split.TEST: 2 << 10}
LIBRARIES = ("torch", "transformers", "accelerate", "huggingface_hub")  # training needs them, so they are there
LEFT_OUT_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "__pycache__"}
)
LEFT_OUT_PREFIXES = ("_sysconfigdata", "__phello__", "this")  # per-build values, and one text in rot13
REPETITIVE = "transformers/models"  # a hundred models with the same arguments
DOCSTRING = re.compile(r'(\A(?:\s*#[^\n]*\n|\s*\n)*|:[ \t]*(?:#[^\n]*)?\n)[ \t]*[rRuU]?"""(.*?)"""', re.DOTALL)


def parse_model_folder(value: object, *, where: At) -> Path:
    """Read a folder relative to the file, or `builtin`: the one that comes with the package."""
    return FORK_POINT if value == "builtin" else where.folder / parse_name(value, where=where)


def fork_point_of(seed: int) -> Path:
    """The builtin fork point of one of the seeds of a study; a sixth seed starts from the first one again."""
    kept = sorted(FORK_POINTS.iterdir())
    return kept[seed % len(kept)]


def documents(
    *, task_share: float, pretrain_bytes: int | None, train_bytes: int | None, seed: int
) -> Iterator[tuple[Split, Document]]:
    """Yield every document with its set; of code and of prose to train on no more than the bytes that are given."""
    limits = {Split.PRETRAIN: pretrain_bytes, Split.TRAIN: train_bytes}
    for split in Split:
        used, limit = 0, limits.get(split)
        for document in code_documents() if split is Split.PRETRAIN else prose_documents(split):
            if limit is not None and used >= limit:
                break
            used += len(document.text)
            yield split, document
        if split in limits:
            for document in task_documents(split, characters=round(used * task_share / (1 - task_share)), seed=seed):
                yield split, document


def code_documents() -> Iterator[Document]:
    """Yield the standard library's sources without their docstrings."""
    for path in _in_any_order(library_files()).values():
        text = DOCSTRING.sub(r"\1", _read(path))
        if len(text) >= LEAST_CHARACTERS:
            yield Document(text=_cut(text, MOST_CHARACTERS[Split.PRETRAIN]), source="code")


def prose_documents(split: Split) -> Iterator[Document]:
    """Yield the docstrings of each file of one set. What stood in an earlier file of the set is not said again.

    What is trained on names its library too, so that a branch can read one of them; what is held out is one source.
    """
    seen: set[str] = set()
    files = prose_files()
    libraries = {document_hash(name): name.partition("/")[0] for name in files}
    for digest, path in _in_any_order(files).items():
        if split_of(digest, shares=PROSE_SHARES) is not split:
            continue
        found = {
            document_hash(text): text for _, raw in DOCSTRING.findall(_read(path)) if (text := inspect.cleandoc(raw))
        }
        text = "\n\n".join(text for key, text in found.items() if key not in seen)
        seen |= found.keys()
        if len(text) >= LEAST_CHARACTERS:
            source = f"prose:{libraries[digest]}" if split is Split.TRAIN else "prose"
            yield Document(text=_cut(text + "\n", MOST_CHARACTERS[split]), source=source)


def library_files() -> dict[str, Path]:
    """The standard library's Python sources by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return _sources(root, root)


def prose_files() -> dict[str, Path]:
    """The sources whose docstrings are the corpus, by name."""
    found: dict[str, Path] = {}
    for name in LIBRARIES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise CorpusError(f"the builtin corpus needs {name}: {install('train')}")
        folder = Path(spec.origin).parent
        found |= _sources(folder, folder.parent)
    return {name: path for name, path in found.items() if not name.startswith(REPETITIVE)}


def builtin_digest() -> str:
    """sha256 of what says which text the corpus holds: versions, and every file's name and size."""
    digest = hashlib.sha256(f"{VERSION} {platform.python_version()}".encode())
    for name in LIBRARIES:
        digest.update(importlib.metadata.version(name).encode())
    for name, path in (library_files() | prose_files()).items():
        digest.update(f"{name} {os.stat(path).st_size}\n".encode())
    return digest.hexdigest()


def _sources(folder: Path, root: Path) -> dict[str, Path]:
    found: dict[str, str] = {}  # texts: thousands of files are looked through whenever this corpus is opened
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT_FOLDERS]
        sources = [name for name in names if name.endswith(".py") and not name.startswith(LEFT_OUT_PREFIXES)]
        within = os.path.relpath(here, root)
        found |= {name if within == "." else f"{within}/{name}": f"{here}/{name}" for name in sources}
    return {name: Path(found[name]) for name in sorted(found, key=lambda name: name.split("/"))}


def _in_any_order(files: Mapping[str, Path]) -> dict[str, Path]:
    """Files by the hash of their name. The split reads its head, the order its tail: they know nothing of each other."""
    hashed = {document_hash(name): path for name, path in files.items()}
    return {digest: hashed[digest] for digest in sorted(hashed, key=lambda digest: digest[::-1])}


def _read(path: Path) -> str:
    return read_words(path, errors="replace")


def _cut(text: str, most: int) -> str:
    """The beginning of a text, ending with a whole line."""
    return text if len(text) <= most else text[: text.rfind("\n", 0, most) + 1]
