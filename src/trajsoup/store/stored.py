"""What a checkpoint stores, whatever its format: named tensors, each a list of boxes in its files.

    format -> Stored: tensors -> boxes (n-d pieces, each somewhere in a file) -> runs (what lies together)

In a plain safetensors file a tensor is one box. Sharded training leaves several, in several files, and some formats
encode each. A pass over weights reads runs, so none of that is a special case to it.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trajsoup.errors import CheckpointError
from trajsoup.store.remote import Place

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
FLOATS = frozenset({"F16", "BF16", "F32", "F64"})  # averaged
EXACT = frozenset({"BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64"})  # must be equal, then copied


class Codec(Protocol):
    """How the numbers of a box became the bytes in the file. Hashable; used from many threads."""

    def decode(self, stored: memoryview, *, nbytes: int) -> bytes:
        """The `nbytes` of the box's numbers, row after row, from all its stored bytes; ValueError if these are damaged."""
        ...


class Box(NamedTuple):
    """A piece of a tensor."""

    file: int  # number among the checkpoint's files
    offset: int  # bytes from the start of the file
    nbytes: int  # in the file
    start: tuple[int, ...]  # where in the tensor its first number is
    shape: tuple[int, ...]
    codec: Codec | None = None  # None: the numbers as they are, little-endian, row after row


MOST_PAIRS = 2_000_000  # of boxes of one tensor that are compared
GATHER_BYTES = 64 << 10  # runs shorter than this are read as whole rows of boxes and put together in memory
GATHER_ROW_BYTES = 1 << 20  # of the whole tensor, at most, since a block is made of whole rows


class Rectangle(NamedTuple):
    """A box as a part of a matrix whose rows are what lies together in the tensor."""

    row: int
    rows: int
    column: int  # in numbers
    columns: int
    box: Box


class Part(NamedTuple):
    """One of the stored tensors that another is computed from."""

    dtype: str
    box: Box

    @property
    def row_bytes(self) -> int:
        """Bytes of one step along the first axis."""
        return math.prod(self.box.shape[1:]) * ITEM_BYTES[self.dtype]


Rows = Callable[[Part, int, int], NDArray[np.uint8]]  # the bytes of some rows of a part


class Making(Protocol):
    """How a tensor of fp32 is computed from stored parts, by rows, when it is read. Picklable; used from many threads."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Everything that is read."""
        ...

    def prepare(self, read: Rows) -> Any:
        """What every row needs. It is held while the tensor is being read."""
        ...

    def rows(self, low: int, high: int, read: Rows, prepared: Any) -> NDArray[np.float32]:
        """Some rows: the same bits however they are cut."""
        ...


class Tensor(NamedTuple):
    """A tensor and where its numbers lie."""

    dtype: str
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]  # each number is in exactly one; of a computed tensor, its first part
    head_rows: int | None = None  # rows of a head that lie in pairs (0, h/2), (1, h/2 + 1), ... and are read in order
    made: Making | None = None  # how it is computed; None: its numbers are in its boxes

    @property
    def lone_box(self) -> Box | None:
        """The one box in which its numbers lie as they are, in their order."""
        plain = len(self.boxes) == 1 and self.boxes[0].codec is None and not self.head_rows and not self.made
        return self.boxes[0] if plain else None

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers, decoded."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


class Signature(dict[str, Tensor]):
    """The tensors of a checkpoint by name, in the order of their bytes where there is one. Nobody changes it, so checkpoints
    that agree may share one, and what is found out of it is found out once for all of them."""

    sound_in: tuple[int, ...] | None = None  # sizes of files in which every box was found to be sound

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """Every dtype that a tensor has."""
        return frozenset({tensor.dtype for tensor in self.values()})

    @cached_property
    def adapter(self) -> str | None:
        """The first tensor of a LoRA adapter."""
        return next((name for name in self if ".lora_A." in name or ".lora_B." in name), None)

    @cached_property
    def encoded(self) -> tuple[tuple[Box, str], ...]:
        """Boxes that must be decoded, with their dtypes."""
        found = ((box, t.dtype) for t in self.values() for box in t.boxes if box.codec is not None)
        return tuple(dict.fromkeys(found))

    @cached_property
    def gathered(self) -> tuple[str, ...]:
        """Tensors put together or computed by rows when they are read."""
        return tuple(name for name, tensor in self.items() if _is_gathered(tensor))

    @cached_property
    def first_bytes(self) -> Mapping[int, int]:
        """By file: where its first box begins."""
        found: dict[int, int] = {}
        for tensor in self.values():
            for file, offset, *_ in tensor.boxes:
                if offset < found.get(file, offset + 1):
                    found[file] = offset
        return found


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Everything that a format knows of a checkpoint. No weight is read yet."""

    files: tuple[Place, ...]  # those that hold weights or say where they lie: together they are its identity
    sizes: tuple[int, ...]  # bytes of each
    tensors: Mapping[str, Tensor]  # a Signature, whatever mapping it was made with
    folder: Place  # of config.json, tokenizer and the like
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])  # to be written into the header of a soup
    left_out: tuple[str, ...] = ()  # what else is there and is no weight: optimizer state, counters, objects

    def __post_init__(self) -> None:
        if not isinstance(self.tensors, Signature):
            object.__setattr__(self, "tensors", Signature(self.tensors))

    @property
    def signature(self) -> Signature:
        """The tensors, with what was found out of them."""
        assert isinstance(self.tensors, Signature)
        return self.tensors

    @cached_property
    def encoded(self) -> Mapping[tuple[Box, str], int]:
        """Boxes that must be decoded, with their dtypes, and the number of each: to a pass it is a file after `files`."""
        return {box: number for number, box in enumerate(self.signature.encoded, start=len(self.files))}

    @cached_property
    def gathered(self) -> Mapping[str, int]:
        """Tensors put together or computed by rows when they are read: to a pass each is a file after the encoded boxes."""
        start = len(self.files) + len(self.encoded)
        return {name: number for number, name in enumerate(self.signature.gathered, start=start)}

    def runs(self, name: str) -> list[tuple[int, int, int]]:
        """Where the numbers of a tensor lie, in their order: (first number, source, byte in it). A source is a file, an
        encoded box or a gathered tensor."""
        if name in self.gathered:
            return [(0, self.gathered[name], 0)]
        dtype, shape, boxes, *_ = self.tensors[name]
        found: list[tuple[int, int, int]] = []
        for box in boxes:
            source, base = (box.file, box.offset) if box.codec is None else (self.encoded[box, dtype], 0)
            found += [(first, source, base + n * ITEM_BYTES[dtype]) for first, n in _runs_of(box, shape)]
        return sorted(found)

    def file_of(self, number: int) -> Place:
        """The file that is meant by the number of a source; of a gathered tensor, the first."""
        boxes = [*(box for box, _ in self.encoded), *(self.tensors[name].boxes[0] for name in self.gathered)]
        return self.files[number if number < len(self.files) else boxes[number - len(self.files)].file]

    def require_sound(self, path: Place) -> None:
        """Refuse boxes that overlap, leave a hole, or lie outside their tensor or file. The dtypes are known ones."""
        if self.signature.sound_in == self.sizes:
            return
        for name, tensor in self.tensors.items():
            if wrong := self._wrong_with(tensor):
                raise CheckpointError(f"{path} is damaged: tensor {name!r} {wrong}. Copy or save it again")
        self.signature.sound_in = self.sizes

    def _wrong_with(self, tensor: Tensor) -> str | None:
        dtype, whole, boxes, head_rows, made = tensor
        if made is not None:
            return next(filter(None, (self._wrong_with(_plain(part)) for part in made.parts)), None)
        if head_rows is not None and (not whole or head_rows < 2 or head_rows % 2 or whole[0] % head_rows):
            return f"of shape {list(whole)} has no heads of {head_rows} rows"
        held = 0
        for file, offset, nbytes, start, shape, codec in boxes:
            if not 0 <= file < len(self.files):
                return f"has a box in file number {file} of {len(self.files)}"
            if offset < 0 or nbytes < 0 or offset + nbytes > self.sizes[file]:
                where = f"bytes {offset:,} to {offset + nbytes:,} of {self.files[file].name}"
                return f"has a box in {where}, which has {self.sizes[file]:,}"
            if shape != whole or len(start) != len(whole) or any(start) or min(shape, default=0) < 0:
                inside = len(start) == len(shape) == len(whole) and min((*start, *shape), default=0) >= 0
                if not inside or any(i + n > size for i, n, size in zip(start, shape, whole, strict=True)):
                    return f"has a box at {list(start)} of shape {list(shape)}, outside its shape {list(whole)}"
            items = math.prod(shape)
            if codec is None and nbytes != items * ITEM_BYTES[dtype]:
                needed = items * ITEM_BYTES[dtype]
                return f"has a box of {dtype} {list(shape)}, which needs {needed:,} bytes and has {nbytes:,}"
            held += items
        wanted = math.prod(whole)
        if held > wanted or (len(boxes) > 1 and _overlap(boxes)):
            return "has boxes that overlap"
        return None if held == wanted else f"has boxes for {held:,} of its {wanted:,} numbers"


def matrix(tensor: Tensor) -> tuple[int, list[Rectangle]] | None:
    """The tensor as a matrix: numbers in a row, and its boxes as rectangles; None where a box is no rectangle of one."""
    shape = tensor.shape
    if not shape or any(box.codec is not None for box in tensor.boxes):
        return None
    axis = 1 if tensor.head_rows else 0
    for box in tensor.boxes:
        axis = max([axis, *(k for k, (mine, whole) in enumerate(zip(box.shape, shape, strict=True)) if mine != whole)])
    width = math.prod(shape[axis:])
    strides = [math.prod(shape[k + 1 : axis]) for k in range(axis)]
    found: list[Rectangle] = []
    for box in tensor.boxes:
        outer = list(zip(box.shape[:axis], shape[:axis], strict=True))
        while outer and outer[0][0] == 1:
            outer.pop(0)
        if any(mine != whole for mine, whole in outer[1:]):
            return None
        row = sum(map(operator.mul, box.start[:axis], strides))
        column = box.start[axis] * math.prod(shape[axis + 1 :]) if axis < len(shape) else 0
        columns = math.prod(box.shape[axis:])
        found.append(Rectangle(row, math.prod(box.shape[:axis]), column, columns, box))
    return width, sorted(found, key=lambda r: (r.row, r.column))


def _plain(part: Part) -> Tensor:
    return Tensor(part.dtype, part.box.shape, (part.box,))


def _is_gathered(tensor: Tensor) -> bool:
    if tensor.head_rows is not None or tensor.made is not None:
        return True
    if len(tensor.boxes) < 2 or all(box.shape[1:] == tensor.shape[1:] for box in tensor.boxes):
        return False
    found = matrix(tensor)
    if found is None:
        return False
    item, (width, rectangles) = ITEM_BYTES[tensor.dtype], found
    shortest = min(r.columns for r in rectangles)
    return width * item <= GATHER_ROW_BYTES and shortest * item < GATHER_BYTES


def _runs_of(box: Box, shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first number in the tensor, first number in the box) of whatever lies together in both."""
    if 0 in box.shape:
        return
    axis = max((k for k, (mine, whole) in enumerate(zip(box.shape, shape, strict=True)) if mine != whole), default=0)
    length = math.prod(box.shape[axis:])
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    first = sum(map(operator.mul, box.start, strides))
    for number, outer in enumerate(itertools.product(*map(range, box.shape[:axis]))):
        yield first + sum(map(operator.mul, outer, strides)), number * length


def _overlap(boxes: Sequence[Box]) -> bool:
    """Whether any two share a number. Boxes with a first axis: a scalar has room for one.

    Along the axis with the most cuts few boxes lie beside each other, in whatever grid; more than MOST_PAIRS do only where
    somebody wants this to take long, and count as overlapping.
    """
    axis = max(range(len(boxes[0].start)), key=lambda k: len({box.start[k] for box in boxes}))
    near: list[Box] = []  # those that reach beyond the beginning of the next
    pairs = 0
    for box in sorted((box for box in boxes if 0 not in box.shape), key=lambda box: box.start[axis]):
        near = [other for other in near if other.start[axis] + other.shape[axis] > box.start[axis]]
        pairs += len(near)
        if pairs > MOST_PAIRS:
            return True
        for other in near:
            edges = zip(other.start, other.shape, box.start, box.shape, strict=True)
            if all(i < j + m and j < i + n for i, n, j, m in edges):
                return True
        near.append(box)
    return False
