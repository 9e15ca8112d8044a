import collections

import pytest

from trajsoup.core.splits import Split, document_hash, require_shares, split_of
from trajsoup.errors import CorpusError

SHARES = {Split.PRETRAIN: 0.3, Split.TRAIN: 0.4, Split.VALIDATION: 0.1, Split.TEST: 0.2}


def test_a_document_keeps_its_split_whatever_other_documents_there_are():
    assert split_of(document_hash("def f(): ..."), shares=SHARES) is split_of(
        document_hash(b"def f(): ..."), shares=SHARES
    )


def test_the_shares_are_met():
    found = collections.Counter(split_of(document_hash(str(i)), shares=SHARES) for i in range(20_000))
    assert {s: found[s] / 20_000 for s in Split} == pytest.approx(SHARES, abs=0.01)


def test_moving_a_border_moves_only_documents_at_it():
    wider = SHARES | {Split.VALIDATION: 0.15, Split.TEST: 0.15}
    for i in range(500):
        before, after = (split_of(document_hash(str(i)), shares=shares) for shares in (SHARES, wider))
        assert before is after or (before is Split.TEST and after is Split.VALIDATION)


def test_a_split_without_a_share_gets_nothing_and_the_last_hash_has_a_place():
    only = {Split.TRAIN: 1.0}
    assert split_of("f" * 64, shares=only) is Split.TRAIN
    thirds = {Split.TRAIN: 1 / 3, Split.VALIDATION: 1 / 3, Split.TEST: 1 / 3}
    assert split_of("f" * 64, shares=thirds) is Split.TEST


@pytest.mark.parametrize("shares", [{Split.TRAIN: 0.9}, {Split.TRAIN: 1.5, Split.TEST: -0.5}, {}])
def test_shares_that_are_no_partition_are_refused(shares):
    with pytest.raises(CorpusError, match="sum to"):
        require_shares(shares)
