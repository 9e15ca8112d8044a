"""Cells and chunks: every byte once, and cuts that do not depend on blocks."""

from __future__ import annotations

from trajsoup.engine.cells import chunks, find_cells
from trajsoup.engine.layout import Layout, OutputFile, Span, blocks
from trajsoup.store.formats.safetensors import build_header

TENSORS = [("a.weight", "BF16", (700,)), ("a.bias", "BF16", (30,)), ("steps", "I64", (2,)), ("b.weight", "F32", (500,))]


def layout() -> Layout:
    return Layout((OutputFile("model.safetensors", *build_header(TENSORS, metadata={}, align=8)),))


def test_tensors_of_one_combination_of_groups_share_a_cell():
    cells = find_cells(layout(), lambda name, shape: (name[0], "big" if shape[0] > 100 else "small"))
    assert cells.groups == (("a", "big"), ("a", "small"), ("b", "big"))
    assert [cells.elements(c) for c in range(3)] == [700, 30, 500]


def test_without_groups_there_is_one_cell_and_integers_are_in_none():
    cells = find_cells(layout(), None)
    assert cells.groups == ((),)
    assert cells.elements(0) == 1230
    assert len(cells.files[0]) == 2  # the integers part the two runs


def test_chunks_cover_every_byte_once_and_do_not_depend_on_the_block_size():
    cells = find_cells(layout(), lambda name, shape: (name,))
    first = cells.files[0][0].start
    span = Span("BF16", "BF16", 0, first, 730, ((0, first),))
    found = []
    for block_bytes in (256, 512, 4096):
        pieces = blocks([span], block_bytes=block_bytes, grain=256)
        found.append([c for block in pieces for c in chunks(block, cells.files[0], chunk_bytes=256)])
    assert found[0] == found[1] == found[2]
    assert found[0][0][1] == first
    assert all(a[2] == b[1] for a, b in zip(found[0], found[0][1:], strict=False))
    assert found[0][-1][2] == first + 1460
    assert {cell for cell, _, _ in found[0]} == {0, 1}
