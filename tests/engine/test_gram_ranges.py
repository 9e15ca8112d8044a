import numpy as np
import pytest

from tests.checkpoints import trajectory
from trajsoup.core.gram import WHOLE
from trajsoup.engine.gram import gram
from trajsoup.engine.stretches import CHUNK_BYTES


class InThisProcess:
    """Runs every task here, one after another."""

    def map(self, function, items, *, progress, **_):
        results = [function(item) for item in items]
        for number, result in enumerate(results):
            progress(number, result)
        return results


def in_short_stretches(found, **arguments):
    """So short that the machines have several tasks each."""
    return gram(found, stretch_bytes=CHUNK_BYTES, **arguments)


@pytest.mark.parametrize("centre", ["c00", None])
def test_many_workers_make_the_gram_matrix_of_one_bit_by_bit(executor, tmp_path, centre):
    found = trajectory(tmp_path, count=4, items=1_000_000, shards=2)
    alone = in_short_stretches(found, centre=centre)
    together = in_short_stretches(found, centre=centre, executor=executor)
    assert together.keys == alone.keys
    for name in alone.groups:
        assert np.array_equal(together.group(name).inner, alone.group(name).inner)
        assert np.array_equal(together.group(name).along_centre, alone.group(name).along_centre)
        assert together.group(name).centre_square == alone.group(name).centre_square


def test_the_work_is_shared_and_every_byte_read_once(executor, tmp_path):
    found = trajectory(tmp_path, count=2, items=1_000_000)
    heard = []
    in_short_stretches(found, centre="c00", executor=executor, progress=heard.append)
    assert len(heard) > 2
    assert sum(heard) == 2 * 2 * 1_000_000


def test_one_gram_leaves_nothing_behind_for_the_next(tmp_path):
    """A task once set the length of stretches for its whole process."""
    found = trajectory(tmp_path, count=2, items=300_000)
    first = gram(found, centre="c00").group(WHOLE).inner
    gram(found, centre="c00", stretch_bytes=CHUNK_BYTES, executor=InThisProcess())
    assert np.array_equal(gram(found, centre="c00").group(WHOLE).inner, first)
