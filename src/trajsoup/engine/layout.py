"""Where each output tensor goes, and from which bytes of which ingredient each output block is made.

checkpoints -> Layout (output files) -> spans (runs of like bytes) -> blocks (units of work)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trajsoup.store.checkpoint import INDEX, SINGLE, Checkpoint
from trajsoup.store.safetensors import FLOATS, ITEM_BYTES, Header, build_header
from trajsoup.store.source import PAGE


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file of the output: its name, its leading bytes, and what they describe."""

    name: str
    lead: bytes
    header: Header


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of an output, the same for every row."""

    files: tuple[OutputFile, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of one output."""
        return sum(file.header.file_bytes for file in self.files)

    def index(self) -> dict[str, object] | None:
        """The content of model.safetensors.index.json; None for a single file."""
        if len(self.files) == 1:
            return None
        total = sum(t.nbytes for file in self.files for t in file.header.tensors.values())
        weight_map = {name: file.name for file in self.files for name in file.header.tensors}
        return {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}


@dataclass(frozen=True, slots=True)
class Span:
    """A run of bytes of one dtype that lies together in the output and in every ingredient."""

    dtype: str
    out_dtype: str
    file: int  # output file
    offset: int  # in the output file
    items: int
    inputs: tuple[tuple[int, int], ...]  # per ingredient: (file, offset)


def make_layout(template: Checkpoint, *, dtype: str | None = None, shard_bytes: int | None = None) -> Layout:
    """Lay the output out as `template` is, or in shards of at most `shard_bytes`; `dtype` converts floating tensors."""
    entries = [
        (i, name, (dtype or t.dtype) if t.dtype in FLOATS else t.dtype, t.shape)
        for name, (i, t) in template.tensors.items()
    ]
    groups: list[list[tuple[str, str, tuple[int, ...]]]] = []
    if shard_bytes is None:
        groups = [[entry[1:] for entry in entries if entry[0] == i] for i in range(len(template.files))]
        names = [path.name for path in template.files]
    else:
        used = shard_bytes + 1
        for _, name, kind, shape in entries:
            size = ITEM_BYTES[kind]
            for length in shape:
                size *= length
            if used + size > shard_bytes:
                groups.append([])
                used = 0
            groups[-1].append((name, kind, shape))
            used += size
        names = [f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors" for i in range(len(groups))]
    if len(groups) == 1:
        names = [SINGLE]
    metadata = {"format": "pt", **template.headers[0].metadata}
    return Layout(
        tuple(
            OutputFile(name, *build_header(group, metadata=metadata)) for name, group in zip(names, groups, strict=True)
        )
    )


def spans(layout: Layout, checkpoints: Sequence[Checkpoint]) -> list[Span]:
    """Pair every output tensor with its bytes in each checkpoint, and join neighbours that are alike everywhere."""
    found: list[Span] = []
    for number, file in enumerate(layout.files):
        for name, tensor in file.header.tensors.items():
            places = [checkpoint.tensors[name] for checkpoint in checkpoints]
            source = places[0][1]
            if source.nbytes == 0:
                continue
            span = Span(
                source.dtype,
                tensor.dtype,
                number,
                tensor.offset,
                source.nbytes // ITEM_BYTES[source.dtype],
                tuple((i, t.offset) for i, t in places),
            )
            if found and _continues(found[-1], span):
                last = found.pop()
                span = Span(last.dtype, last.out_dtype, last.file, last.offset, last.items + span.items, last.inputs)
            found.append(span)
    return found


def blocks(all_spans: Sequence[Span], *, block_bytes: int, grain: int = PAGE) -> Iterator[Span]:
    """Cut spans into blocks of at most `block_bytes`, at multiples of `grain` in the output where they can."""
    for span in all_spans:
        item, out_item = ITEM_BYTES[span.dtype], ITEM_BYTES[span.out_dtype]
        most = max(block_bytes // max(item, out_item), 1)
        start = 0
        while start < span.items:
            end = min(start + most, span.items)
            overhang = (span.offset + end * out_item) % grain
            if end < span.items and overhang % out_item == 0 and end - overhang // out_item > start:
                end -= overhang // out_item
            yield Span(
                span.dtype,
                span.out_dtype,
                span.file,
                span.offset + start * out_item,
                end - start,
                tuple((file, offset + start * item) for file, offset in span.inputs),
            )
            start = end


def _continues(last: Span, span: Span) -> bool:
    if (last.file, last.dtype, last.out_dtype) != (span.file, span.dtype, span.out_dtype):
        return False
    if last.offset + last.items * ITEM_BYTES[last.out_dtype] != span.offset:
        return False
    step = last.items * ITEM_BYTES[last.dtype]
    return all(
        file == next_file and offset + step == next_offset
        for (file, offset), (next_file, next_offset) in zip(last.inputs, span.inputs, strict=True)
    )


__all__ = ["INDEX", "Layout", "OutputFile", "Span", "blocks", "make_layout", "spans"]
