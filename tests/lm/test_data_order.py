import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lm.stand_in import byte_tokens
from trajsoup.errors import TrainError
from trajsoup.lm.data_order import DataOrder, permuted


def order_of(seed=1, length=32, digest="d", n=10_000):
    return DataOrder(tokens=np.arange(n, dtype=np.uint32), digest=digest, seed=seed, sequence_length=length)


@given(st.integers(1, 3000), st.binary(max_size=8))
def test_an_epoch_is_a_permutation(size, key):
    image = permuted(np.arange(size), size=size, key=key)
    assert np.array_equal(np.sort(image), np.arange(size))


def test_a_sequence_is_the_same_in_every_batch_size_and_from_every_start():
    order = order_of()
    whole = order.batch(0, 700)  # more than two epochs of 312
    for first, count in ((0, 7), (300, 30), (311, 2), (655, 45)):
        assert np.array_equal(order.batch(first, count), whole[first : first + count])


def test_every_window_is_seen_once_in_an_epoch_and_in_another_order_in_the_next():
    order = order_of()
    first, second = order.batch(0, 312)[:, 0], order.batch(312, 312)[:, 0]
    assert sorted(first) == sorted(second) == list(range(0, 312 * 32, 32))
    assert not np.array_equal(first, second)


def test_seed_and_corpus_change_the_order():
    starts = {tuple(o.batch(0, 50)[:, 0]) for o in (order_of(), order_of(seed=2), order_of(digest="e"))}
    assert len(starts) == 3


def test_the_order_is_fixed_for_good():
    assert order_of().batch(0, 6)[:, 0].tolist() == FIXED


def test_orders_of_two_seeds_are_uncorrelated():
    a, b = (permuted(np.arange(5000), size=5000, key=key) for key in (b"1", b"2"))
    assert abs(np.corrcoef(a, np.arange(5000))[0, 1]) < 0.05
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.05
    assert abs(np.corrcoef(a[:-1], a[1:])[0, 1]) < 0.05


def test_epochs_say_how_often_the_set_is_read():
    assert order_of().epochs(312 * 32 * 3) == 3


def test_rows_are_the_corpus_own_tokens():
    tokens = byte_tokens()
    order = DataOrder(tokens=tokens.tokens, digest=tokens.digest, seed=0, sequence_length=16)
    row = order.batch(5, 1)[0].astype(np.uint16).tobytes()
    assert row in tokens.tokens.tobytes()


def test_a_set_shorter_than_one_sequence_is_refused_with_its_size():
    with pytest.raises(TrainError, match="has 31 tokens, fewer than one sequence of 32"):
        order_of(n=31)


FIXED = [8064, 1664, 9728, 4736, 3584, 1632]
