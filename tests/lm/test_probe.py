import numpy as np
import pytest

from trajsoup.errors import CorpusError
from trajsoup.lm.corpus import TokenSet
from trajsoup.lm.probe import probe_of

TOKENS = TokenSet(
    tokens=np.array([t for i in range(50) for t in [*range(1, 2 + i % 7), 0]], np.uint16),
    starts=np.cumsum([0, *(2 + i % 7 for i in range(50))]),
    digest="ab" * 32,
    document_bytes=np.arange(50),
    source=np.zeros(50, np.uint8),
    source_names=("a",),
)


def test_a_probe_holds_whole_documents_of_about_the_wanted_size():
    probe = probe_of(TOKENS, max_tokens=60)
    assert 60 - 4 <= probe.n_tokens <= 60 + 4
    assert (probe.tokens[probe.starts[1:] - 1] == 0).all()
    assert len(probe.document_bytes) == len(probe.source) == probe.n_documents


def test_the_same_set_and_seed_give_the_same_probe_and_another_seed_another():
    assert probe_of(TOKENS, max_tokens=60).digest == probe_of(TOKENS, max_tokens=60).digest
    assert probe_of(TOKENS, max_tokens=60, seed=1).digest != probe_of(TOKENS, max_tokens=60).digest


def test_a_long_document_does_not_make_it_several_times_as_large():
    long = TokenSet(tokens=np.ones(1010, np.uint16), starts=np.array([0, 5, 10, 1010]), digest="ab" * 32)
    for seed in range(6):
        assert probe_of(long, max_tokens=20, seed=seed).n_tokens in (5, 10, 1000)  # 1000 only where it comes first
    sizes = {probe_of(long, max_tokens=20, seed=seed).n_tokens for seed in range(20)}
    assert 10 in sizes
    assert not sizes & {1005, 1010}


def test_a_probe_larger_than_the_set_is_the_set():
    probe = probe_of(TOKENS, max_tokens=10**9)
    np.testing.assert_array_equal(probe.tokens, TOKENS.tokens)


def test_an_empty_probe_is_refused():
    with pytest.raises(CorpusError, match="empty"):
        probe_of(TOKENS, max_tokens=0)
