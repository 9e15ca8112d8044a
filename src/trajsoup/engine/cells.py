"""Which bytes of a checkpoint belong to which groups of tensors, and how a block is cut so that no cut depends on it.

A tensor may belong to several groups (attention, layer 3). The distinct combinations are *cells*: each byte lies in one
cell, products are summed by cell, and a group is a sum of cells.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trajsoup.engine.layout import Layout, Span
from trajsoup.store.stored import FLOATS, ITEM_BYTES

Groups = Callable[[str, tuple[int, ...]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of bytes of one file whose floating tensors lie in the same cell."""

    start: int
    end: int
    cell: int
    items: int


@dataclass(frozen=True, slots=True)
class Cells:
    """The groups of every cell, and the pieces of every file in order."""

    groups: tuple[tuple[str, ...], ...]
    files: tuple[tuple[Piece, ...], ...]

    def elements(self, cell: int) -> int:
        """How many numbers a cell has."""
        return sum(piece.items for file in self.files for piece in file if piece.cell == cell)

    def at(self, file: int, offset: int) -> int:
        """The cell of a byte of a floating tensor."""
        pieces = self.files[file]
        return pieces[bisect.bisect_right(pieces, offset, key=lambda piece: piece.start) - 1].cell


def find_cells(layout: Layout, groups: Groups | None) -> Cells:
    """Sort the floating tensors of a layout into cells; without `groups` there is one."""
    cells: dict[tuple[str, ...], int] = {}
    files: list[tuple[Piece, ...]] = []
    for file in layout.files:
        found: list[Piece] = []
        for name, t in file.header.tensors.items():
            if t.dtype not in FLOATS or t.nbytes == 0:
                continue
            names = () if groups is None else tuple(dict.fromkeys(groups(name, t.shape)))
            cell = cells.setdefault(names, len(cells))
            piece = Piece(t.offset, t.offset + t.nbytes, cell, t.nbytes // ITEM_BYTES[t.dtype])
            if found and (found[-1].end, found[-1].cell) == (piece.start, cell):
                last = found.pop()
                piece = Piece(last.start, piece.end, cell, last.items + piece.items)
            found.append(piece)
        files.append(tuple(found))
    return Cells(tuple(cells), tuple(files))


def cut(all_spans: Iterable[Span], cells: Cells) -> Iterator[Span]:
    """The same spans, cut so that each lies in one cell; integers, which lie in none, stay as they are."""
    for span in all_spans:
        if span.dtype not in FLOATS:
            yield span
            continue
        item, out_item = ITEM_BYTES[span.dtype], ITEM_BYTES[span.out_dtype]
        end = span.offset + span.items * out_item
        for piece in cells.files[span.file]:
            low, high = max(span.offset, piece.start), min(end, piece.end)
            if low < high:
                skipped = (low - span.offset) // out_item * item
                inputs = tuple((file, offset + skipped) for file, offset in span.inputs)
                yield replace(span, offset=low, items=(high - low) // out_item, inputs=inputs)


def chunks(block: Span, pieces: Sequence[Piece], *, chunk_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Cut a block where pieces meet and at multiples of `chunk_bytes` of the file: (cell, begin, end) in bytes.

    If blocks too begin and end at such multiples, the same chunks come out however large the blocks are.
    """
    end = block.offset + block.items * ITEM_BYTES[block.dtype]
    first = bisect.bisect_right(pieces, block.offset, key=lambda piece: piece.start) - 1
    for piece in pieces[first:]:
        if piece.start >= end:
            return
        position, stop = max(block.offset, piece.start), min(end, piece.end)
        while position < stop:
            cut = min(position - position % chunk_bytes + chunk_bytes, stop)
            yield piece.cell, position, cut
            position = cut
