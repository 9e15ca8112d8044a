"""Blend on many machines: one task for each output file, or for each stretch of a long one. Paths travel, weights do not.

    spans -> tasks (paths, weights, bytes from and to) -> Executor -> files in one folder that all machines see, or objects

The arithmetic is element by element, so where it is cut changes no bit. A task writes a file under a name of its own
and renames it, or fills its stretch of a file in place: run twice, it leaves the same bytes.
"""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trajsoup.core.soup import Row
from trajsoup.engine.blend import Sink, blend
from trajsoup.engine.executor import TASK_SECONDS, Executor
from trajsoup.engine.layout import Layout, Span, blocks, spans
from trajsoup.engine.object_sink import ObjectSink
from trajsoup.engine.sinks import FileSink
from trajsoup.engine.workers import Options
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.digest import Algorithm, sha256_file
from trajsoup.store.formats import Format
from trajsoup.store.names import NameMap
from trajsoup.store.remote import Place, RemotePath, absolute
from trajsoup.store.stored import ITEM_BYTES, Signature, Tensor
from trajsoup.store.upload import Upload

STRETCH_BYTES = 2 << 30  # a longer output file becomes several tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """Some spans of one output file."""

    row: Row
    places: Mapping[str, tuple[str, Format, NameMap | None]]  # by key: path, format and other names of each ingredient
    exact_from: str | None
    layout: Layout  # of this file alone
    parts: tuple[Span, ...]
    folder: Place
    whole: bool  # the task makes the whole file, not a stretch of it
    digest: Algorithm | None  # of ingredients; then output files have their sha256
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """What a task says when it is done."""

    read_bytes: int
    output: str | None = None  # sha256 of the file, if the task made all of it
    ingredients: Mapping[tuple[str, str], str] | None = None  # (key, file name) -> digest, where it read all of it


def blend_shards(
    checkpoints: Mapping[str, Checkpoint],
    row: Row,
    folder: Place,
    *,
    layout: Layout,
    executor: Executor,
    exact_from: str | None = None,
    digest: Algorithm | None = Algorithm.BLAKE3,
    stretch_bytes: int = STRETCH_BYTES,
    timeout_seconds: float = TASK_SECONDS,
    options: Options | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, str]]:
    """Compute `row` into the files of `layout` in `folder`; return the digests of ingredients, by key, and of files.

    Every machine must see `folder` and the ingredients under the same names. Ingredients whose files no single task
    reads whole are not hashed here.
    """
    folder = folder if isinstance(folder, RemotePath) else folder.absolute()
    keys = sorted(row.weights.keys() | ({exact_from} if exact_from else set()))
    tasks = shard_tasks(
        {key: checkpoints[key] for key in keys},
        row,
        folder,
        layout=layout,
        exact_from=exact_from,
        digest=digest,
        stretch_bytes=stretch_bytes,
        options=options or Options(),
    )
    in_stretches = sorted({t.layout.files[0].name for t in tasks if not t.whole})
    for file in layout.files:
        if file.name in in_stretches:
            _allocate(Path(str(folder)) / file.name, file.header.file_bytes)
    results = executor.map(
        run_shard, tasks, timeout_seconds=timeout_seconds, progress=lambda number, result: progress(result.read_bytes)
    )
    _remove_strays(folder, layout)
    for file in layout.files:
        if file.name in in_stretches:
            _write_lead(Path(str(folder)) / file.name, file.lead)
    files = {t.layout.files[0].name: r.output for t, r in zip(tasks, results, strict=True) if r.output is not None}
    if digest is not None and in_stretches:
        paths = [Path(str(folder)) / name for name in in_stretches]
        hashed = executor.map(sha256_file, paths, timeout_seconds=timeout_seconds)
        files |= dict(zip(in_stretches, hashed, strict=True))
    known = {place: value for result in results for place, value in (result.ingredients or {}).items()}
    hashes: dict[str, tuple[str, ...]] = {}
    for key in keys:
        names = [(key, name) for name in checkpoints[key].names]
        if all(name in known for name in names):
            hashes[key] = tuple(known[name] for name in names)
    return hashes, files


def shard_tasks(
    checkpoints: Mapping[str, Checkpoint],
    row: Row,
    folder: Place,
    *,
    layout: Layout,
    exact_from: str | None,
    digest: Algorithm | None,
    stretch_bytes: int,
    options: Options,
) -> list[ShardTask]:
    """Cut the blend into tasks. `checkpoints` are in the order of their sorted keys."""
    found = spans(layout, list(checkpoints.values()))
    tasks: list[ShardTask] = []
    for number, file in enumerate(layout.files):
        mine = [replace(span, file=0) for span in found if span.file == number]
        whole = file.header.file_bytes <= stretch_bytes or isinstance(folder, RemotePath)
        for parts in [mine] if whole else _stretches(mine, stretch_bytes):
            tasks.append(
                ShardTask(
                    row=row,
                    places={key: (absolute(c.path), c.format, c.name_map) for key, c in checkpoints.items()},
                    exact_from=exact_from,
                    layout=Layout((file,)),
                    parts=tuple(parts),
                    folder=folder,
                    whole=whole,
                    digest=digest if whole else None,
                    options=options,
                )
            )
    return tasks


def run_shard(task: ShardTask) -> ShardResult:
    """Do one task, on whatever machine this is."""
    name = task.layout.files[0].name
    if isinstance(task.folder, RemotePath):
        upload = Upload(task.folder)
        with tempfile.TemporaryDirectory() as nothing, _discarding(upload):
            sink = ObjectSink(upload, task.layout, digest=task.digest is not None)
            result = fill_shard(task, sink)
            upload.publish(Path(nothing), last=())
        return replace(result, output=sink.finish().get(name))
    if not task.whole:
        with _StretchSink(task.folder / name) as sink:
            return fill_shard(task, sink)
    own = f".{name}.{uuid.uuid4().hex}"
    layout = Layout((replace(task.layout.files[0], name=own),))
    try:
        with FileSink(task.folder, layout, digest=task.digest is not None) as sink:
            result = fill_shard(task, sink)
            output = sink.finish().get(own)
        os.replace(task.folder / own, task.folder / name)
    except BaseException:
        (task.folder / own).unlink(missing_ok=True)
        raise
    return replace(result, output=output)


def fill_shard(task: ShardTask, sink: Sink) -> ShardResult:
    """Compute the spans of one task into `sink`."""
    checkpoints = {
        key: open_checkpoint(path, format=format, name_map=name_map)
        for key, (path, format, name_map) in task.places.items()
    }
    read = sum(span.items * ITEM_BYTES[span.dtype] for span in task.parts) * len(checkpoints)
    narrowed = _narrowed(checkpoints, task.parts)
    order, parts = narrowed or (checkpoints, list(task.parts))
    hashes = blend(
        order,
        [task.row],
        [sink],
        layout=task.layout,
        exact_from=task.exact_from,
        digest=None if narrowed is None else task.digest,
        parts=parts,
        options=task.options,
    )
    known = {(key, order[key].names[0]): digests[0] for key, digests in hashes.items()}
    return ShardResult(read_bytes=read, ingredients=known)


class _StretchSink:
    """Fills a part of a file that is there already."""

    waits = True

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY)

    def write(self, file: int, offset: int, block: memoryview) -> None:
        done = 0
        while done < len(block):
            done += os.pwrite(self._fd, block[done:], offset + done)

    def cancel(self) -> None:
        """Nothing waits here."""

    def __enter__(self) -> _StretchSink:
        return self

    def __exit__(self, *exception: object) -> None:
        os.fsync(self._fd)
        os.close(self._fd)


def _stretches(mine: Sequence[Span], stretch_bytes: int) -> list[list[Span]]:
    found: list[list[Span]] = []
    used = stretch_bytes + 1
    for block in blocks(mine, block_bytes=min(stretch_bytes, 64 << 20)):
        size = block.items * ITEM_BYTES[block.out_dtype]
        if used + size > stretch_bytes:
            found.append([])
            used = 0
        found[-1].append(block)
        used += size
    return found


def _narrowed(
    checkpoints: Mapping[str, Checkpoint], parts: Sequence[Span]
) -> tuple[dict[str, Checkpoint], list[Span]] | None:
    """If every part lies in one file of each ingredient, those files alone; then they can be hashed on the way."""
    keys = sorted(checkpoints)
    files = [{span.inputs[m][0] for span in parts} for m in range(len(keys))]
    if any(len(numbers) != 1 for numbers in files) or any(c.encoded or c.gathered for c in checkpoints.values()):
        return None
    order: dict[str, Checkpoint] = {}
    alone: dict[tuple[int, int], Signature] = {}  # checkpoints of one signature share it still
    for key, (number,) in zip(keys, files, strict=True):
        c = checkpoints[key]
        same = (id(c.tensors), number)
        if same not in alone:
            alone[same] = _of_file(c.tensors, number)
        order[key] = replace(
            c, files=(c.files[number],), sizes=(c.sizes[number],), states=(c.states[number],), tensors=alone[same]
        )
    return order, [replace(s, inputs=tuple((0, offset) for _, offset in s.inputs)) for s in parts]


def _of_file(tensors: Mapping[str, Tensor], number: int) -> Signature:
    """The tensors with what one file has of them."""
    mine = {name: [box._replace(file=0) for box in t.boxes if box.file == number] for name, t in tensors.items()}
    return Signature({name: t._replace(boxes=tuple(mine[name])) for name, t in tensors.items()})


@contextlib.contextmanager
def _discarding(upload: Upload):  # noqa: ANN202
    try:
        yield
    except BaseException:
        upload.discard()
        raise


def _remove_strays(folder: Place, layout: Layout) -> None:
    """Workers that were killed leave what they had written, under names of their own."""
    if isinstance(folder, Path):
        for file in layout.files:
            for stray in folder.glob(f".{glob.escape(file.name)}.*"):
                stray.unlink(missing_ok=True)


def _allocate(path: Path, nbytes: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, nbytes)
    finally:
        os.close(fd)


def _write_lead(path: Path, lead: bytes) -> None:
    """The leading bytes come last: until then no reader takes the file for whole."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.fsync(fd)
        os.pwrite(fd, lead, 0)
        os.fsync(fd)
    finally:
        os.close(fd)
