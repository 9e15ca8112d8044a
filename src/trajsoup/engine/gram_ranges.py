"""The Gram pass on many machines: tasks are ranges of stretches; what comes back is one small matrix for each.

Stretches lie at fixed places of the file and are added in their order, here as on one machine: the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trajsoup.engine.cells import Cells
from trajsoup.engine.executor import TASK_SECONDS, Executor
from trajsoup.engine.layout import Layout, Span
from trajsoup.engine.stretches import Bad, Sums, float_spans, sum_stretches
from trajsoup.engine.workers import Options
from trajsoup.store.checkpoint import Checkpoint, open_checkpoint
from trajsoup.store.formats import Format
from trajsoup.store.remote import absolute
from trajsoup.store.stored import ITEM_BYTES

TASK_STRETCHES = 16  # of one task: 1 GB of every checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTask:
    """Some stretches of every checkpoint."""

    places: tuple[tuple[str, Format], ...]
    fork: int | None
    layout: Layout
    cells: Cells
    new: tuple[int, ...] | None
    fast: bool
    options: Options
    parts: tuple[Span, ...]
    stretch_bytes: int

    @property
    def read_bytes(self) -> int:
        """Bytes that the task reads."""
        return sum(span.items * ITEM_BYTES[span.dtype] for span in self.parts) * len(self.places)


def share_stretches(
    checkpoints: Sequence[Checkpoint],
    *,
    fork: int | None,
    layout: Layout,
    cells: Cells,
    new: Sequence[int] | None,
    fast: bool,
    options: Options,
    executor: Executor,
    stretch_bytes: int,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> tuple[Sums, Bad]:
    """What `stretches.sum_stretches` returns, computed by the machines of `executor`, which all see the same paths."""
    tasks = [
        RangeTask(
            places=tuple((absolute(checkpoint.path), checkpoint.format) for checkpoint in checkpoints),
            fork=fork,
            layout=layout,
            cells=cells,
            new=None if new is None else tuple(new),
            fast=fast,
            options=options,
            parts=tuple(parts),
            stretch_bytes=stretch_bytes,
        )
        for parts in _ranges(float_spans(layout, checkpoints), stretch_bytes)
    ]
    results = executor.map(
        run_range,
        tasks,
        timeout_seconds=TASK_SECONDS,
        progress=lambda number, result: progress(tasks[number].read_bytes),
    )
    sums: Sums = {}
    bad: Bad = set()
    for mine, wrong in results:
        sums |= mine  # a stretch belongs to one task
        bad |= wrong
    return sums, bad


def run_range(task: RangeTask) -> tuple[Sums, Bad]:
    """Do one task, on whatever machine this is."""
    return sum_stretches(
        [open_checkpoint(path, format=format) for path, format in task.places],
        fork=task.fork,
        layout=task.layout,
        cells=task.cells,
        new=task.new,
        fast=task.fast,
        options=task.options,
        stretch_bytes=task.stretch_bytes,
        parts=task.parts,
    )


def _ranges(found: Sequence[Span], stretch_bytes: int) -> list[list[Span]]:
    """Cut spans where stretches meet, and put neighbouring stretches together."""
    by_task: dict[tuple[int, int], list[Span]] = {}
    for span in found:
        item, position, end = ITEM_BYTES[span.dtype], span.offset, span.offset + span.items * ITEM_BYTES[span.dtype]
        while position < end:
            cut = min(position - position % stretch_bytes + stretch_bytes, end)
            moved = position - span.offset
            inputs = tuple((file, offset + moved) for file, offset in span.inputs)
            part = Span(span.dtype, span.out_dtype, span.file, position, (cut - position) // item, inputs)
            by_task.setdefault((span.file, position // stretch_bytes // TASK_STRETCHES), []).append(part)
            position = cut
    return list(by_task.values())
