"""The Gram matrix of a study, kept by content: no product is taken twice.

    checkpoints, their hashes, <study>/gram.json -> only what is new is multiplied -> Gram under the study's names

Without a new checkpoint no weight is read. A new one needs its products with all others, so each of them is read once
more; products among the known are not taken again. About a mean, which moves with every checkpoint, only the same set is
known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from trajsoup.core.gram import Gram, subset
from trajsoup.core.gram_record import GramRecord, gram_of, named, record_of
from trajsoup.core.tensor_groups import tensor_groups
from trajsoup.engine.executor import Executor
from trajsoup.engine.gram import gram
from trajsoup.engine.workers import Options
from trajsoup.errors import GeometryError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic

FILE = "gram.json"
MATRICES = "matrices"  # the group of tensors with two and more dimensions


def groups(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The groups that are kept: by kind, by layer, and the matrices, by which fork points are told apart."""
    return (*tensor_groups(name, shape), *((MATRICES,) if len(shape) >= 2 else ()))


def kept_gram(
    checkpoints: Mapping[str, Checkpoint],
    *,
    hashes: Mapping[str, str],
    centre: str | None,
    path: Path,
    options: Options | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Gram:
    """Return the matrix of `checkpoints` about `centre`, from the record at `path` as far as that goes; keep the rest there.

    `hashes` gives the content hash of every key. A record that is damaged, or about another centre, is made anew.
    """
    wanted = {key: hashes[key] for key in checkpoints}
    distinct = {hashes[key]: checkpoint for key, checkpoint in checkpoints.items()}
    middle = None if centre is None else hashes[centre]
    known = _read(path)
    if known is not None and (known.centre != middle or (middle is None and set(known.keys) != set(distinct))):
        known = None
    if known is None or not distinct.keys() <= set(known.keys):
        known = gram(
            distinct,
            centre=middle,
            groups=groups,
            known=known,
            options=options,
            executor=executor,
            progress=progress,
        )
        write_atomic(path, json.dumps(asdict(record_of(known))) + "\n")
    return named(subset(known, list(distinct)), wanted, centre=centre)


def _read(path: Path) -> Gram | None:
    if not path.is_file():
        return None
    try:
        record = read_json(path, GramRecord, cure="delete it", error=GeometryError, nan=True)
        return gram_of(record)
    except GeometryError:
        return None  # a memory of products, nothing more: they are taken again
