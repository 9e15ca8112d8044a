import numpy as np
import pytest

from trajsoup.core.scores import DocumentLosses
from trajsoup.study.records.validation import ScoredCheckpoint
from trajsoup.study.stages.validation import saturation


def branch(name, *losses):
    return [
        ScoredCheckpoint(key=f"{name}/{i}", branch=name, tokens=100 * (i + 1), loss=v, accuracy=None, probe_loss=None)
        for i, v in enumerate(losses)
    ]


def test_saturation_is_the_share_of_improvement_in_the_first_half():
    assert saturation(branch("A", 3.0, 2.2, 2.0)) == pytest.approx({"A": 0.8})


def test_a_branch_that_does_not_improve_or_is_too_short_has_none():
    assert (
        saturation([*branch("A", 2.0, 2.1, 2.2), *branch("B", 3.0, 2.0), *branch("C", None, 2.0, float("nan"))]) == {}
    )


def test_pieces_of_the_probe_are_whole_documents_and_weigh_up_to_its_loss():
    losses = DocumentLosses(nll=np.array([2.0, 9.0, 4.0, 3.0]), targets=np.array([1, 3, 2, 1]))
    assert losses.pieces(2) == (2.0, 3.0)  # (2 + 4) / 3 and (9 + 3) / 4
    assert len(losses.pieces()) == 4
    assert DocumentLosses(nll=np.array([2.0]), targets=np.array([1])).pieces() == ()
