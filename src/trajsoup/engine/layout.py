"""Where each output tensor goes, and from which bytes of which ingredient each output block is made.

checkpoints -> Layout (output files) -> spans (runs of like bytes) -> blocks (units of work)

An output is safetensors, or torch DCP. An ingredient may lie in any number of boxes: a span ends where a run of any
ingredient does.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trajsoup.errors import CheckpointError
from trajsoup.store.checkpoint import Checkpoint
from trajsoup.store.formats.dcp import METADATA, Dcp
from trajsoup.store.formats.dcp_writer import Copy, lay_out
from trajsoup.store.formats.safetensors import SINGLE, Entry, Header, Safetensors, build_header
from trajsoup.store.fp8 import CODES, SUFFIX, Blocks, Scaled
from trajsoup.store.source import PAGE
from trajsoup.store.stored import FLOATS, ITEM_BYTES, Part, Tensor

SHARD_BYTES = 5 * 10**9  # of an output whose template has no shards to follow
KEPT = re.compile(r"(e_score_correction_bias|expert_bias)$")  # of a router: in 16 bits it would choose other experts

Described = tuple[str, str, tuple[int, ...]]  # name, dtype, shape


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file of the output: its name, its leading bytes, and what they describe."""

    name: str
    lead: bytes
    header: Header
    fixed: tuple[tuple[int, bytes], ...] = ()  # (offset, bytes) that stand between the tensors, in some formats


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of an output, the same for every row."""

    files: tuple[OutputFile, ...]
    listing: tuple[str, bytes] | None = None  # a file that says where the tensors lie: its name and its content
    copies: tuple[Copy, ...] = ()  # files of what is no weight, as another checkpoint has it
    wide: Layout | None = None  # with tensors of block scales as fp32: what a pass computes, before requantise.py
    blocks: Mapping[str, Blocks] = field(default_factory=dict[str, Blocks])  # by tensor: how its scales lie

    @property
    def nbytes(self) -> int:
        """Bytes of one output."""
        return sum(file.header.file_bytes for file in self.files) + sum(copy.nbytes for copy in self.copies)

    def index(self) -> dict[str, object] | None:
        """The content of model.safetensors.index.json; None for a single file."""
        if len(self.files) == 1 or self.listing is not None:
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
    inputs: tuple[tuple[int, int], ...]  # per ingredient: (file or encoded box, offset); see `Stored.runs`


def make_layout(
    template: Checkpoint, *, dtype: str | None = None, shard_bytes: int | None = None, requantise: bool = False
) -> Layout:
    """Lay the output out as `template` is, or in shards of at most `shard_bytes`; `dtype` converts floating tensors.

    Tensors of FP8 with block scales are fp32, unless they are to be FP8 again (`requantise`).

    >>> make_layout(open_checkpoint("model"), dtype="F32")  # doctest: +SKIP
    """
    pieces = any(len(t.boxes) > 1 for t in template.tensors.values())
    if shard_bytes is None and (pieces or not isinstance(template.format, Safetensors)):
        shard_bytes = SHARD_BYTES
    blocks = {name: t.made.blocks for name, t in template.tensors.items() if requantise and isinstance(t.made, Scaled)}
    entries = [(t.boxes[0].file if t.boxes else 0, described) for t, described in _described(template, dtype)]
    groups: list[list[Described]] = []
    if shard_bytes is None:
        groups = [[] for _ in template.files]
        for file, entry in entries:
            groups[file].append(entry)
        names = [path.name for path in template.files]
        groups, names = map(list, zip(*((g, n) for g, n in zip(groups, names, strict=True) if g), strict=True))
    else:
        used = shard_bytes + 1
        for _, entry in entries:
            size = sum(math.prod(shape) * ITEM_BYTES[kind] for _, kind, shape in _quantised([entry], blocks))
            if used + size > shard_bytes:
                groups.append([])
                used = 0
            groups[-1].append(entry)
            used += size
        names = [f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors" for i in range(len(groups))]
    if len(groups) == 1:
        names = [SINGLE]
    metadata = {"format": "pt", **template.metadata}

    def laid_out(grouped: Sequence[Sequence[Described]]) -> tuple[OutputFile, ...]:
        made = [build_header(group, metadata=metadata) for group in grouped]
        return tuple(OutputFile(name, *one) for name, one in zip(names, made, strict=True))

    wide = Layout(laid_out(groups))
    if not blocks:
        return wide
    return Layout(laid_out([_quantised(group, blocks) for group in groups]), wide=wide, blocks=blocks)


def _described(template: Checkpoint, dtype: str | None) -> Iterator[tuple[Tensor, Described]]:
    for name, t in template.tensors.items():
        converted = dtype is not None and t.dtype in FLOATS and not KEPT.search(name)
        yield t, (name, dtype if converted and dtype is not None else t.dtype, t.shape)


def _quantised(group: Sequence[Described], blocks: Mapping[str, Blocks]) -> list[Described]:
    """Each tensor of block scales as codes, with its scales behind it."""
    found: list[Described] = []
    for name, kind, shape in group:
        own = blocks.get(name)
        if own is None:
            found.append((name, kind, shape))
        else:
            found += [(name, CODES, shape), (name + SUFFIX, own.dtype, own.shape(shape))]
    return found


def same_layout(
    template: Checkpoint,
    *,
    dtype: str | None = None,
    shard_bytes: int | None = None,
    state_from: Checkpoint | None = None,
) -> Layout:
    """Lay the output out as a folder of `template`'s own format, which its trainer loads: torch DCP.

    The trainer's state, optimizer and all, is that of the checkpoint `state_from`, or absent.
    """
    for checkpoint in filter(None, (template, state_from)):
        if not isinstance(checkpoint.format, Dcp):
            raise CheckpointError(
                f"{checkpoint.path} is {checkpoint.format.name}, and --format same writes torch DCP only: leave it out"
            )
    tensors = {name: (kind, shape) for _, (name, kind, shape) in _described(template, dtype)}
    state = None if state_from is None else state_from.folder
    made = lay_out(template.folder, tensors, file_bytes=shard_bytes, state_from=state)
    files = tuple(OutputFile(file.name, b"", file.header, file.fixed) for file in made.files)
    return Layout(files, (METADATA, made.metadata), made.copies)


def layout_of(output: Checkpoint) -> Layout:
    """The layout of an output that is there, each of whose tensors is one box, or one of codes and one of scales."""
    held: list[dict[str, Entry]] = [{} for _ in output.files]
    groups: list[list[Described]] = [[] for _ in output.files]
    blocks: dict[str, Blocks] = {}
    for name, tensor in output.tensors.items():
        (box,) = tensor.boxes
        groups[box.file].append((name, tensor.dtype, tensor.shape))
        parts = {name: Part(tensor.dtype, box)}
        if isinstance(tensor.made, Scaled):
            blocks[name] = tensor.made.blocks
            parts = {name: tensor.made.codes, name + SUFFIX: tensor.made.scales}
        for inner, (dtype, place) in parts.items():
            held[place.file][inner] = Entry(dtype, place.shape, place.offset, place.nbytes)
    headers = [Header(tensors, {}, 0, size) for tensors, size in zip(held, output.sizes, strict=True)]
    files = tuple(OutputFile(path.name, b"", h) for path, h in zip(output.files, headers, strict=True))
    if not blocks:
        return Layout(files)
    made = (build_header(group, metadata={}) for group in groups)
    wide = Layout(tuple(OutputFile(file.name, *one) for file, one in zip(files, made, strict=True)))
    return Layout(files, wide=wide, blocks=blocks)


def spans(layout: Layout, checkpoints: Sequence[Checkpoint]) -> list[Span]:
    """Pair every output tensor with its bytes in each checkpoint, and join neighbours that are alike everywhere."""
    found: list[Span] = []
    distinct, which = _distinct(checkpoints)
    for number, file in enumerate(layout.files):
        for name, entry in file.header.tensors.items():
            for span in _spans_of(name, entry, number, distinct, 0, entry.nbytes // ITEM_BYTES[entry.dtype]):
                if found and _continues(found[-1], span):
                    last = found.pop()
                    items = last.items + span.items
                    found.append(Span(last.dtype, last.out_dtype, last.file, last.offset, items, last.inputs))
                else:
                    found.append(span)
    return [_for_all(span, which) for span in found]


def _distinct(checkpoints: Sequence[Checkpoint]) -> tuple[list[Checkpoint], list[int]]:
    """One checkpoint of each signature with as many files, in which the same bytes lie at the same places; and for every
    checkpoint the number of the one that stands for it."""
    numbers: dict[tuple[int, int], int] = {}
    keys = [(id(checkpoint.tensors), len(checkpoint.files)) for checkpoint in checkpoints]
    which = [numbers.setdefault(key, len(numbers)) for key in keys]
    return [checkpoints[which.index(number)] for number in range(len(numbers))], which


def _for_all(span: Span, which: Sequence[int]) -> Span:
    if len(span.inputs) == len(which):
        return span
    return replace(span, inputs=tuple(span.inputs[number] for number in which))


def sample_spans(
    layout: Layout,
    checkpoints: Sequence[Checkpoint],
    *,
    items: int,
    seed: int,
    blocks: Mapping[str, Blocks] | None = None,
) -> list[Span]:
    """A random slice of every tensor, of at most `items` numbers. Spans of joined tensors would leave small ones out.

    Of a tensor among `blocks`, the rows of a block.
    """
    chance = random.Random(seed)
    found: list[Span] = []
    distinct, which = _distinct(checkpoints)
    for number, file in enumerate(layout.files):
        for name, entry in file.header.tensors.items():
            count = entry.nbytes // ITEM_BYTES[entry.dtype]
            length = min(count, items)
            if length and name in (blocks or {}):
                band = (blocks or {})[name].rows * entry.shape[1]
                begin = chance.randrange(-(-count // band)) * band
                found += _spans_of(name, entry, number, distinct, begin, min(begin + band, count))
            elif length:
                begin = chance.randrange(count - length + 1)
                found += _spans_of(name, entry, number, distinct, begin, begin + length)
    return [_for_all(span, which) for span in found]


def _spans_of(
    name: str, entry: Entry, file: int, checkpoints: Sequence[Checkpoint], begin: int, end: int
) -> Iterator[Span]:
    """The numbers from `begin` to `end` of one tensor, cut wherever a run of any checkpoint begins."""
    dtype = checkpoints[0].tensors[name].dtype
    item, out_item = ITEM_BYTES[dtype], ITEM_BYTES[entry.dtype]
    boxes = [checkpoint.tensors[name].lone_box for checkpoint in checkpoints]
    if begin < end and None not in boxes:  # nearly always, and quicker
        inputs = tuple([(box.file, box.offset + begin * item) for box in boxes if box is not None])
        yield Span(dtype, entry.dtype, file, entry.offset + begin * out_item, end - begin, inputs)
        return
    runs = [checkpoint.runs(name) for checkpoint in checkpoints]
    inner = {first for one in runs for first, _, _ in one if begin < first < end}
    for low, high in itertools.pairwise(sorted({begin, end} | inner)):
        places = (one[bisect.bisect_right(one, (low, math.inf)) - 1] for one in runs)
        inputs = tuple((source, offset + (low - first) * item) for first, source, offset in places)
        yield Span(dtype, entry.dtype, file, entry.offset + low * out_item, high - low, inputs)


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
