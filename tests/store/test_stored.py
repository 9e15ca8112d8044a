import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajsoup.errors import CheckpointError
from trajsoup.store.stored import Box, Stored, Tensor


@st.composite
def cut_tensors(draw):
    """A shape, and boxes that fill it: halves of halves, along any axis."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    boxes = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 6)) if shape else 0):
        start, inner = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, inner[axis]))
        boxes.append((start, (*inner[:axis], at, *inner[axis + 1 :])))
        rest = (*inner[:axis], inner[axis] - at, *inner[axis + 1 :])
        boxes.append(((*start[:axis], start[axis] + at, *start[axis + 1 :]), rest))
    return shape, draw(st.permutations(boxes))


def stored_in(shape, boxes) -> Stored:
    """A tensor `w` of these boxes, each in a file of its own after one spare byte."""
    found = [Box(i, 1, 8 * math.prod(inner), start, inner) for i, (start, inner) in enumerate(boxes)]
    return Stored(
        files=tuple(Path(f"{i}.raw") for i in range(len(boxes))),
        sizes=tuple(1 + box.nbytes for box in found),
        tensors={"w": Tensor("F64", shape, tuple(found))},
        folder=Path("."),
    )


@pytest.fixture(scope="module")
def runs_only():
    """No tensor is short enough to be gathered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trajsoup.store.stored.GATHER_BYTES", 0)
        yield


@pytest.mark.usefixtures("runs_only")
@given(cut_tensors())
def test_runs_lead_to_every_number_of_a_tensor_in_its_order(cut):
    shape, boxes = cut
    whole = np.arange(math.prod(shape)).reshape(shape)
    pieces = [
        whole[tuple(slice(i, i + n) for i, n in zip(start, inner, strict=True))].reshape(-1) for start, inner in boxes
    ]
    stored = stored_in(shape, boxes)
    stored.require_sound(Path("x"))
    runs = stored.runs("w")
    ends = [*(first for first, _, _ in runs), whole.size][1:]
    found = [
        pieces[file][(offset - 1) // 8 : (offset - 1) // 8 + end - first]
        for (first, file, offset), end in zip(runs, ends, strict=True)
    ]
    assert np.concatenate([*found, []]).tolist() == list(range(whole.size))


@given(cut_tensors(), st.data())
def test_boxes_are_sound_exactly_if_each_number_is_in_one(cut, data):
    shape, boxes = cut
    number = data.draw(st.integers(0, len(boxes) - 1))
    inner = boxes[number][1]
    moved = tuple(data.draw(st.integers(0, whole - n)) for n, whole in zip(inner, shape, strict=True))
    boxes = [*boxes[:number], (moved, inner), *boxes[number + 1 :]]
    counts = np.zeros(shape, int)
    for at, size in boxes:
        counts[tuple(slice(i, i + n) for i, n in zip(at, size, strict=True))] += 1
    stored = stored_in(shape, boxes)
    if (counts == 1).all():
        stored.require_sound(Path("x"))
    else:
        with pytest.raises(CheckpointError, match=r"x is damaged: tensor 'w' has boxes"):
            stored.require_sound(Path("x"))


@pytest.mark.usefixtures("runs_only")
def test_a_split_along_the_first_axis_is_a_run_for_each_box_and_along_the_last_one_for_each_row():
    rows = stored_in((6, 4), [((0, 0), (3, 4)), ((3, 0), (3, 4))])
    columns = stored_in((6, 4), [((0, 0), (6, 2)), ((0, 2), (6, 2))])
    assert [run[:2] for run in rows.runs("w")] == [(0, 0), (12, 1)]
    assert [run[:2] for run in columns.runs("w")] == [(2 * i, i % 2) for i in range(12)]


def test_many_boxes_are_checked_quickly_enough_to_be_checked_always():
    grid = list(itertools.product(range(0, 128, 2), range(0, 128, 2)))
    stored_in((128, 128), [(at, (2, 2)) for at in grid]).require_sound(Path("x"))  # 4,096 boxes
