"""What a stranger's file controls costs linear time. Quadratic, each of these takes minutes to hours: the limit is wide."""

import json

import pytest

from trajsoup.errors import CheckpointError
from trajsoup.merge.plan import explicit_row
from trajsoup.store.formats.safetensors import parse_header
from trajsoup.store.stored import Box, _overlap
from trajsoup.store.yaml_file import decode_yaml

pytestmark = pytest.mark.timeout(300)
MANY = 200_000


def test_naming_the_name_that_stands_twice_in_a_header(tmp_path):
    names = [*(f'"t{i}": 1' for i in range(MANY)), f'"t{MANY - 1}": 1']
    with pytest.raises(CheckpointError, match=f"duplicate key 't{MANY - 1}'"):
        parse_header(f"{{{', '.join(names)}}}".encode(), path=tmp_path, file_bytes=0)


def test_many_keys_of_which_the_last_stands_twice():
    from trajsoup.errors import StudyError

    text = json.dumps({f"k{i}": i for i in range(20_000)})[:-1] + ', "k19999": 1}'
    with pytest.raises(StudyError, match="'k19999' is given twice"):
        decode_yaml(text, where="x")


def test_many_ingredients(tmp_path):
    assert len(explicit_row([(tmp_path / str(i), 1 / 20_000) for i in range(20_000)]).weights) == 20_000


@pytest.mark.parametrize("axis", [0, 1])
def test_many_boxes_side_by_side(axis):
    shape = (4, 1) if axis else (1, 4)
    boxes = [Box(0, 0, 4, (0, i) if axis else (i, 0), shape) for i in range(50_000)]
    assert not _overlap(boxes)
    assert _overlap([*boxes, boxes[17]])


def test_boxes_laid_out_to_take_long_count_as_overlapping():
    n = 4_000
    across = [Box(0, 0, 4, (i, 0), (1, n)) for i in range(n)]
    down = [Box(0, 0, 4, (0, n + i), (n, 1)) for i in range(n)]
    assert _overlap([*across, *down])
