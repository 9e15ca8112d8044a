"""Check a soup against its record: hashes, index, side files, and numbers recomputed from the ingredients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from trajsoup.core.soup import Row
from trajsoup.engine.executor import TASK_SECONDS, Executor
from trajsoup.engine.layout import layout_of, sample_spans, spans
from trajsoup.engine.workers import Options
from trajsoup.errors import BlendError, CheckpointError, VerifyError
from trajsoup.merge.provenance import FORMAT, RECORD
from trajsoup.merge.recompute import compare_here, compare_together
from trajsoup.store.checkpoint import (
    INDEX,
    WEIGHT_LIKE,
    Checkpoint,
    files_below,
    open_checkpoint,
    renamed,
    require_same,
)
from trajsoup.store.digest import Algorithm, digest_file
from trajsoup.store.formats import Format
from trajsoup.store.formats.lora import Lora
from trajsoup.store.json_file import read_json
from trajsoup.store.names import NameMap
from trajsoup.store.remote import Place, RemotePath, place, require_allowed
from trajsoup.store.shown import is_plain, shown_name
from trajsoup.store.stored import FLOATS, ITEM_BYTES

SAMPLE_ITEMS = 4096  # of every tensor
AGAIN = "make the soup again"
LOADED = (*WEIGHT_LIKE, ".py", ".so", ".json", ".jinja", ".model")  # what a loader may act on


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedIngredient:
    """One checkpoint as soup.json names it."""

    path: str
    weight: float
    blake3: Mapping[str, str | None] | None = None  # by file
    sha256: Mapping[str, str | None] | None = None  # the same, in soups that were hashed so

    def digests(self, algorithm: Algorithm) -> Mapping[str, str | None]:
        """Of each file, if the files were hashed so."""
        return (self.blake3 if algorithm is Algorithm.BLAKE3 else self.sha256) or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutput:
    """The files of the soup and their sha256; None where hashing was switched off."""

    files: Mapping[str, str | None]
    side_files: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoupRecord:
    """What is checked of soup.json."""

    format: str
    soup: str
    uniform: bool
    exact_from: str | None
    ingredients: Annotated[tuple[RecordedIngredient, ...], Meta(min_length=1)]
    output: RecordedOutput
    groups: Mapping[str, Mapping[str, float]] | None = None  # of tensors that have weights of their own, by path
    names: dict[str, Any] | None = None  # how the ingredients' names became the soup's
    lora_base: str | None = None  # into which the ingredients, adapters, were merged
    mean_of: int | None = None  # checkpoints whose sums the ingredients are


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was checked, and held."""

    files: int  # weight files that have their recorded sha256
    side_files: int
    tensors: int
    values: int  # recomputed from the ingredients and equal bit by bit
    full: bool
    unhashed: tuple[str, ...] = ()  # files whose sha256 was never recorded
    unknown: tuple[str, ...] = ()  # files in the folder that the record does not name, and that no loader reads


def verify_soup(
    path: Place | str,
    *,
    full: bool = False,
    seed: int = 0,
    relocate: Mapping[str, str] | None = None,
    allow_urls: Sequence[str] = (),
    options: Options | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Verification:
    """Raise `VerifyError` at the first thing that is not as recorded.

    By default every output file is hashed and a random slice of every tensor is recomputed; `full` recomputes all and
    hashes the ingredients too. `relocate` maps path beginnings of ingredients that have moved, the longest first. An
    ingredient in a store is read if the soup is in the same one, or if its URL is below one of `allow_urls`. With an
    `executor`, its machines share the hashing, and with `full` the recomputing too.

    >>> verify_soup("soup", full=True).values  # doctest: +SKIP
    """
    path = place(path)
    record = read_record(path)
    unhashed = _check_hashes(path, record.output, executor)
    output = open_checkpoint(path)
    _check_files(path, record.output, output)
    unknown = _unlisted(path, record.output)
    _check_index(path, output)
    listed = {i.path: i for i in record.ingredients}  # by the recorded path: its order is that of the sums
    row, names = _row(path, record), _names(path, record)
    places = {key: _moved(key, relocate or {}) for key in (*listed, *([record.lora_base] if record.lora_base else ()))}
    for key, moved in places.items():
        if moved == key:
            require_allowed(moved, named_in=path, allowed=allow_urls)
    adapters = None if record.lora_base is None else Lora(places[record.lora_base])
    checkpoints = {key: renamed(_open_moved(places[key], adapters), names) for key in listed}
    first = next(iter(checkpoints.values()))
    for checkpoint in checkpoints.values():
        require_same(first, checkpoint)
    _check_tensors(output, first)
    exact_from = record.exact_from
    layout = layout_of(output)
    ordered = [checkpoints[key] for key in sorted(row.weights.keys() | ({exact_from} if exact_from else set()))]
    wide = layout.wide or layout
    parts = (
        spans(wide, ordered)
        if full
        else sample_spans(wide, ordered, items=SAMPLE_ITEMS, seed=seed, blocks=layout.blocks)
    )
    known: Mapping[tuple[str, str], str] = {}
    algorithm = _algorithm(path, record)
    if full and executor is not None:
        known = compare_together(
            path,
            checkpoints,
            row,
            layout=layout,
            exact_from=exact_from,
            digest=algorithm,
            options=options,
            executor=executor,
            progress=progress,
        )
    else:
        found = compare_here(
            path,
            checkpoints,
            row,
            layout=layout,
            parts=parts,
            exact_from=exact_from,
            digest=algorithm if full else None,
            options=options,
            progress=progress,
        )
        known = {
            (key, name): digest
            for key, digests in found.items()
            for name, digest in zip(checkpoints[key].names, digests, strict=True)
        }
    if full:
        _check_ingredients(listed, checkpoints, known, algorithm, executor)
    return Verification(
        files=sum(digest is not None for digest in record.output.files.values()),
        side_files=sum(digest is not None for digest in record.output.side_files.values()),
        tensors=len(output.tensors),
        values=sum(part.items for part in parts),
        full=full,
        unhashed=unhashed,
        unknown=unknown,
    )


def read_bytes(path: Place | str, *, full: bool) -> int:
    """About how many bytes `verify_soup` reads from the ingredients, for a progress bar."""
    count = len(read_record(place(path)).ingredients)
    output = open_checkpoint(path)
    sizes = [t.nbytes if full else min(t.nbytes, SAMPLE_ITEMS * ITEM_BYTES[t.dtype]) for t in output.tensors.values()]
    return count * sum(sizes)


def read_record(path: Place) -> SoupRecord:
    """soup.json of an output."""
    if not path.is_dir():
        raise VerifyError(f"there is no folder {path}: check the path")
    file = path / RECORD
    record = read_json(file, SoupRecord, cure=AGAIN, error=VerifyError) if file.is_file() else None
    if record is None or record.format != FORMAT:
        raise VerifyError(f"{path} has no {RECORD} of the form {FORMAT!r}: it was not made by `trajsoup merge`")
    return record


def _inconsistent(path: Place, what: str) -> VerifyError:
    return VerifyError(f"{path / RECORD} is damaged ({what}): {AGAIN}")


def _row(path: Place, record: SoupRecord) -> Row:
    """The row of the record, which must be one that `merge` could have written."""
    weights = {i.path: i.weight for i in record.ingredients}
    if len(weights) < len(record.ingredients):
        raise _inconsistent(path, "an ingredient stands there twice")
    if record.exact_from is not None and record.exact_from not in weights:
        raise _inconsistent(path, "exact_from is no ingredient")
    used = {key: weight for key, weight in weights.items() if weight or key != record.exact_from}
    try:
        row = Row(name=record.soup, weights=used, groups=record.groups, mean_of=record.mean_of)
        row.require_sum_one()
    except BlendError as error:
        raise _inconsistent(path, str(error)) from error
    if row.uniform != record.uniform:
        raise _inconsistent(
            path, f"it says uniform: {record.uniform}, and its weights are {sorted({*used.values()})[:4]}"
        )
    return row


def _algorithm(path: Place, record: SoupRecord) -> Algorithm:
    """How the ingredients were hashed, all of them in one way."""
    found = {algorithm for algorithm in Algorithm for i in record.ingredients if any(i.digests(algorithm).values())}
    if len(found) > 1:
        raise _inconsistent(path, "its ingredients are hashed in several ways")
    return next(iter(found), Algorithm.BLAKE3)


def _names(path: Place, record: SoupRecord) -> NameMap | None:
    try:
        return None if record.names is None else NameMap.from_record(record.names)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _inconsistent(path, f"its names cannot be read ({error!r:.100})") from error


def _check_files(path: Place, recorded: RecordedOutput, output: Checkpoint) -> None:
    """The weights that a loader finds are those that the record names."""
    listed, there = recorded.files.keys(), {*output.names} - {*recorded.side_files}
    if absent := sorted(listed - {*output.names}):
        raise VerifyError(f"{path / absent[0]} is missing: the folder is incomplete; copy or make it again")
    if extra := sorted(there - listed):
        raise _inconsistent(path, f"it says nothing of {extra[0]}, which holds weights")


def _unlisted(path: Place, recorded: RecordedOutput) -> tuple[str, ...]:
    """Files that the record does not name. One that a loader would read is refused."""
    known = {*recorded.files, *recorded.side_files, RECORD}
    found = sorted(name for name in files_below(path) if name not in known)
    for name in found:
        if name.endswith(LOADED):
            raise VerifyError(f"{path / shown_name(name)} is not in the record, and loaders may read it: remove it")
    return tuple(found)


def _check_hashes(path: Place, output: RecordedOutput, executor: Executor | None) -> tuple[str, ...]:
    recorded = {**output.files, **output.side_files}
    for name in recorded:
        place(name)  # is a name
        file, parts = path / name, Path(name).parts
        inside = is_plain(name) and not Path(name).is_absolute() and ".." not in parts
        if not inside or path.resolve() not in file.resolve().parents:
            raise VerifyError(
                f"{path / RECORD} names {name!r:.200}, which is outside the folder: it must not be trusted"
            )
        if not file.is_file():
            raise VerifyError(f"{file} is missing: the folder is incomplete; copy or make it again")
    wanted = {path / name: digest for name, digest in recorded.items() if digest is not None}
    for file, digest in _hashed(list(wanted), Algorithm.SHA256, executor):
        if digest != wanted[file]:
            raise VerifyError(f"{file} has changed since the merge (its sha256 differs from the record)")
    return tuple(name for name, digest in recorded.items() if digest is None)


def _hashed(files: Sequence[Place], algorithm: Algorithm, executor: Executor | None) -> Iterable[tuple[Place, str]]:
    hashed = functools.partial(digest_file, algorithm=algorithm)
    if executor is None:
        return ((file, hashed(file)) for file in files)
    paths = [file if isinstance(file, RemotePath) else file.absolute() for file in files]
    return zip(files, executor.map(hashed, paths, timeout_seconds=TASK_SECONDS), strict=True)


def _check_index(path: Place, output: Checkpoint) -> None:
    if not (path / INDEX).is_file():
        return
    index = read_json(path / INDEX, dict[str, dict[str, Any]], cure=AGAIN, error=VerifyError)
    claimed = index.get("metadata", {}).get("total_size")
    layout = layout_of(output)
    actual = sum(t.nbytes for file in layout.files for t in file.header.tensors.values())
    if claimed != actual:
        raise VerifyError(
            f"{path / INDEX} claims a total_size of {claimed}, the tensors have {actual} bytes: it is stale"
        )


def _check_tensors(output: Checkpoint, ingredient: Checkpoint) -> None:
    for name, tensor in ingredient.tensors.items():
        if name not in output.tensors:
            raise VerifyError(f"{output.path} lacks tensor {name!r}, which every ingredient has")
        twin = output.tensors[name]
        if twin.shape != tensor.shape or (twin.dtype != tensor.dtype and not {twin.dtype, tensor.dtype} <= FLOATS):
            raise VerifyError(
                f"tensor {name!r} is {twin.dtype} {list(twin.shape)}, in the ingredients {tensor.dtype} {list(tensor.shape)}"
            )
    if extra := next((name for name in output.tensors if name not in ingredient.tensors), None):
        raise VerifyError(f"{output.path} holds tensor {extra!r}, which no ingredient has")


def _check_ingredients(
    listed: Mapping[str, RecordedIngredient],
    checkpoints: Mapping[str, Checkpoint],
    known: Mapping[tuple[str, str], str],
    algorithm: Algorithm,
    executor: Executor | None,
) -> None:
    """Compare with the digests of the record what the recomputing has hashed on its way, and hash the rest."""
    recorded = {(key, name): digest for key, i in listed.items() for name, digest in i.digests(algorithm).items()}
    places = {
        (key, name): file
        for key, checkpoint in checkpoints.items()
        for file, name in zip(checkpoint.files, checkpoint.names, strict=True)
        if recorded.get((key, name)) is not None
    }
    unread = {file: None for place, file in places.items() if place not in known}  # adapters share their base: once
    hashed = dict(_hashed(list(unread), algorithm, executor))
    for (key, name), file in places.items():
        if (known.get((key, name)) or hashed[file]) != recorded[key, name]:
            raise VerifyError(
                f"ingredient {file} has changed since the merge (its {algorithm} differs from the record)"
            )


def _open_moved(path: str, format: Format | None) -> Checkpoint:
    try:
        return open_checkpoint(path, format=format)
    except CheckpointError as error:
        old = "." if path.startswith("./") else "OLD"  # the record of a soup that was published names no folder of ours
        raise VerifyError(f"{error}; if the ingredients have moved, pass --relocate {old}=NEW") from error


def _moved(path: str, relocate: Mapping[str, str]) -> str:
    for old, new in sorted(relocate.items(), key=lambda move: -len(move[0])):
        if path == old or path.startswith(old.rstrip("/") + "/"):
            return new.rstrip("/") + path[len(old.rstrip("/")) :]
    return path
