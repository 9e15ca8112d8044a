"""Recompute a soup's values from its ingredients and compare them bit by bit, here or on many machines.

spans of the soup -> blend -> a sink that compares with what is stored and writes nothing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.executor import TASK_SECONDS, Executor
from trajsoup.engine.layout import Layout, Span
from trajsoup.engine.requantise import Requantising
from trajsoup.engine.shards import STRETCH_BYTES, ShardResult, ShardTask, fill_shard, shard_tasks
from trajsoup.engine.sinks import SINK_SHARE
from trajsoup.engine.workers import Options
from trajsoup.errors import VerifyError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.digest import Algorithm
from trajsoup.store.open_files import OpenFiles
from trajsoup.store.remote import Place, RemotePath
from trajsoup.store.source import open_source


def compare_here(
    folder: Place,
    checkpoints: Mapping[str, Checkpoint],
    row: Row,
    *,
    layout: Layout,
    parts: Sequence[Span],
    exact_from: str | None,
    digest: Algorithm | None,
    options: Options | None,
    progress: Callable[[int], None],
) -> Mapping[str, tuple[str, ...]]:
    """Compare `parts`; raise at the first difference. With `digest`, those of ingredients come back by key."""
    with Comparison(folder, layout) as comparison:
        return blend(
            checkpoints,
            [row],
            [comparison if layout.wide is None else Requantising(comparison, layout)],
            layout=layout.wide or layout,
            exact_from=exact_from,
            digest=digest,
            parts=parts,
            options=options,
            progress=progress,
        )


def compare_together(
    folder: Place,
    checkpoints: Mapping[str, Checkpoint],
    row: Row,
    *,
    layout: Layout,
    exact_from: str | None,
    digest: Algorithm,
    options: Options | None,
    executor: Executor,
    progress: Callable[[int], None],
    stretch_bytes: int = STRETCH_BYTES,
) -> Mapping[tuple[str, str], str]:
    """Compare every value on the executor's machines; the digests of files that one task read whole come back.

    They are named by key and file. Every machine must see the soup and its ingredients under the same names.
    """
    if layout.wide is not None:
        raise VerifyError(f"{folder} is FP8, whose blocks one machine recomputes: leave out --engine")
    keys = sorted(row.weights.keys() | ({exact_from} if exact_from else set()))
    tasks = shard_tasks(
        {key: checkpoints[key] for key in keys},
        row,
        folder if isinstance(folder, RemotePath) else folder.absolute(),
        layout=layout,
        exact_from=exact_from,
        digest=digest,
        stretch_bytes=stretch_bytes,
        options=options or Options(),
    )
    results = executor.map(
        compare_shard, tasks, timeout_seconds=TASK_SECONDS, progress=lambda _, result: progress(result.read_bytes)
    )
    return {place: digest for result in results for place, digest in (result.ingredients or {}).items()}


def compare_shard(task: ShardTask) -> ShardResult:
    """Do one task, on whatever machine this is."""
    with Comparison(task.folder, task.layout) as comparison:
        return fill_shard(task, comparison)


class Comparison:
    """A sink that compares instead of writing."""

    waits = True

    def __init__(self, folder: Place, layout: Layout) -> None:
        self.layout = layout
        self._files = OpenFiles(share=SINK_SHARE)
        self._sources = [open_source(folder / file.name, files=self._files) for file in layout.files]

    def write(self, file: int, offset: int, block: memoryview) -> None:
        """Raise if the soup holds other bytes there."""
        stored = memoryview(bytearray(len(block)))
        self._sources[file].read(stored, offset=offset, nbytes=len(block))
        if stored != block:
            at = offset + next(i for i, (a, b) in enumerate(zip(stored, block, strict=True)) if a != b)
            tensors = self.layout.files[file].header.tensors
            name = next(n for n, t in tensors.items() if t.offset <= at < t.offset + t.nbytes)
            raise VerifyError(
                f"tensor {name!r} in {self.layout.files[file].name} is not the weighted sum of the recorded ingredients: "
                "the output or an ingredient has changed since the merge"
            )

    def cancel(self) -> None:
        """Nothing waits here."""

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, *exception: object) -> None:
        self._files.close()
