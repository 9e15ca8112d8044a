import numpy as np
import pytest

from tests.checkpoints import trajectory
from trajsoup.engine import gram as gram_module
from trajsoup.engine import gram_ranges
from trajsoup.engine.gram import CHUNK_BYTES, gram


@pytest.fixture
def short_stretches(monkeypatch):
    monkeypatch.setattr(gram_module, "STRETCH_BYTES", 2 * CHUNK_BYTES)
    monkeypatch.setattr(gram_ranges, "TASK_STRETCHES", 2)


@pytest.mark.parametrize("centre", ["c00", None])
def test_many_workers_make_the_gram_matrix_of_one_bit_by_bit(executor, tmp_path, short_stretches, centre):
    found = trajectory(tmp_path, count=4, items=200_000, shards=2)
    alone, together = gram(found, centre=centre), gram(found, centre=centre, executor=executor)
    assert together.keys == alone.keys
    for name in alone.groups:
        assert np.array_equal(together.group(name).inner, alone.group(name).inner)
        assert np.array_equal(together.group(name).along_centre, alone.group(name).along_centre)
        assert together.group(name).centre_square == alone.group(name).centre_square


def test_the_work_is_shared_and_every_byte_read_once(executor, tmp_path, short_stretches):
    found = trajectory(tmp_path, count=2, items=200_000)
    heard = []
    gram(found, centre="c00", executor=executor, progress=heard.append)
    assert len(heard) > 2
    assert sum(heard) == 2 * 2 * 200_000
