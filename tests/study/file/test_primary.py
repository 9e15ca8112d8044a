"""Registered comparisons, as people write them."""

import pytest

from trajsoup.core.signal import Signal
from trajsoup.errors import StudyError
from trajsoup.study.file.primary import REGISTERED, Primary, parse_primary


def test_a_line_names_model_reference_and_signal():
    lines = ["trajectory-soup/limited against single-merge", "a against b in accuracy"]
    assert parse_primary(lines, where="primary") == (
        Primary("trajectory-soup/limited", "single-merge", Signal.LOSS),
        Primary("a", "b", Signal.ACCURACY),
    )
    assert parse_primary("a against b", where="primary") == (Primary("a", "b"),)
    assert [parse_primary(str(one), where="primary")[0] for one in REGISTERED] == list(REGISTERED)


@pytest.mark.parametrize("line", ["a", "a against b in style", "a against a", "a vs b"])
def test_a_line_that_is_none_says_how_to_write_it(line):
    with pytest.raises(StudyError, match="write `MODEL against REFERENCE`"):
        parse_primary([line], where="primary")


def test_a_comparison_counts_once():
    with pytest.raises(StudyError, match="twice"):
        parse_primary(["a against b", "a against b in loss"], where="primary")
