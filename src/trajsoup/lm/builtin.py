"""The corpus every Python machine has: sources of the standard library, pydoc topics, and generated task documents.

Documents are whole files, cut to a length at which no single one outweighs the rest of a split. Tests, character
tables and files that describe this build of Python are left out: not every installation has them.
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from trajsoup.core.splits import Split, document_hash, split_of
from trajsoup.lm.documents import Document
from trajsoup.lm.tasks.training import task_documents

VERSION = 1  # raise it when the same Python would give other documents

LEAST_BYTES = 400
MOST_BYTES = 64 << 10
LEFT_OUT_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "__pycache__"}
)
LEFT_OUT_PREFIXES = ("_sysconfigdata", "__phello__", "this")  # per-build values, and one text in rot13


def documents(
    *, shares: Mapping[Split, float], task_share: float, limit_bytes: int | None, seed: int
) -> Iterator[tuple[Split, Document]]:
    """Yield every document with its set. With `limit_bytes`, the library documents of lowest hash are kept."""
    texts = {document_hash(document.text): document for document in library_documents()}
    used = dict.fromkeys(Split, 0)
    for digest in sorted(texts, key=lambda digest: digest[::-1]):  # the split reads the hash's head, the order its tail
        size = len(texts[digest].text)
        if limit_bytes is not None and sum(used.values()) + size > limit_bytes:
            continue
        split = split_of(digest, shares=shares)
        used[split] += size
        yield split, texts[digest]
    for split in Split:
        characters = round(used[split] * task_share / (1 - task_share))
        for document in task_documents(split, characters=characters, seed=seed):
            yield split, document


def topics_digest() -> str:
    """sha256 of the pydoc topics."""
    from pydoc_data.topics import topics

    return hashlib.sha256(json.dumps(topics, sort_keys=True).encode()).hexdigest()


def library_files() -> tuple[Path, ...]:
    """The standard library's Python sources, in order of name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return tuple(sorted(path for path in root.rglob("*.py") if _wanted(path.relative_to(root))))


def library_documents() -> Iterator[Document]:
    """Yield one document per source file, then one per pydoc topic."""
    for path in library_files():
        text = _cut(path.read_text(encoding="utf-8", errors="replace"))
        if len(text) >= LEAST_BYTES:
            yield Document(text=text, source="library")
    from pydoc_data.topics import topics

    for name in sorted(topics):
        text = _cut(topics[name])
        if len(text) >= LEAST_BYTES:
            yield Document(text=text, source="topics")


def _wanted(path: Path) -> bool:
    return not LEFT_OUT_FOLDERS & set(path.parts) and not path.name.startswith(LEFT_OUT_PREFIXES)


def _cut(text: str) -> str:
    """The beginning of a text, ending with a whole line."""
    text = text.replace("\r\n", "\n")
    return text if len(text) <= MOST_BYTES else text[: text.rfind("\n", 0, MOST_BYTES) + 1]
